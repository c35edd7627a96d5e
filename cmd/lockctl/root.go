package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// The exit codes of all commands.
const (
	exitFinding     = 1 // the answer is no: not held, not confirmed, or a check has a finding
	exitUsage       = 2 // a flag, an argument, a URL or a key is not valid
	exitUnavailable = 3 // the service does not answer, or the outcome is unknown
	exitRefused     = 4 // the service refuses: a right is missing, or the data is of another program
	exitUnsupported = 5 // this backend cannot do that
)

// errFinding ends a command with exitFinding. Its output has said why already.
var errFinding = errors.New("finding")

// answerLimit is how long one request may take.
const answerLimit = 5 * time.Second

// tool is one run of lockctl: its flags, and where it reads and writes.
type tool struct {
	url, store, output string
	in                 io.Reader
	out, errs          io.Writer
	started            bool
}

// run executes a command line and returns the exit code.
func (t *tool) run(ctx context.Context, args []string) int {
	root := t.root()
	root.SetArgs(args)
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.errs)
	command, err := root.ExecuteContextC(ctx)
	code := exitCode(err)
	if err != nil && (!t.started || code == exitUsage) {
		err, code = fmt.Errorf("%w; see %s -h", err, command.CommandPath()), exitUsage
	}
	t.report(err)
	return code
}

// packages matches the names of packages in an error.
var packages = regexp.MustCompile(`\b(distlock|redislock|redlock|pglock|lockedmemory|sessionstore|redisstore|pgstore): (invalid option: )?`)

// report writes an error.
func (t *tool) report(err error) {
	if err != nil && err != errFinding {
		t.say("%s", packages.ReplaceAllString(err.Error(), ""))
	}
}

// say writes one line.
func (t *tool) say(format string, args ...any) {
	fmt.Fprintln(t.errs, clean(strings.Join(strings.Fields(fmt.Sprintf("lockctl: "+format, args...)), " ")))
}

// exitCodes are those of errors. Every other error is exitUnavailable.
var exitCodes = []struct {
	kind error
	code int
}{
	{nil, 0},
	{errFinding, exitFinding}, {errChanged, exitFinding}, {distlock.ErrNotAcquired, exitFinding},
	{sessionstore.ErrNotEmpty, exitFinding}, {sessionstore.ErrRange, exitFinding},
	{distlock.ErrInvalidOption, exitUsage}, {distlock.ErrInvalidKey, exitUsage},
	{errors.ErrUnsupported, exitUnsupported},
	{distlock.ErrRefused, exitRefused}, {driver.ErrRefused, exitRefused}, {driver.ErrForeign, exitRefused},
}

func exitCode(err error) int {
	for _, each := range exitCodes {
		if errors.Is(err, each.kind) {
			return each.code
		}
	}
	return exitUnavailable
}

func (t *tool) root() *cobra.Command {
	root := &cobra.Command{
		Use:     "lockctl",
		Version: version(),
		Short:   "Show locks and sessions, and end a lock by its token",
		Long: "lockctl shows the locks and the sessions of a service.\n" +
			"Give the service with --url or LOCKCTL_URL, as redis://localhost:6379/0.\n" +
			"Its parameter namespace chooses the locks.\n\n" +
			"Exit codes: 0 done; 1 no, not held, or a finding; 2 wrong use; 3 no answer;\n" +
			"4 refused by the service; 5 the backend cannot do that.",
		SilenceErrors: true,
		SilenceUsage:  true,
		// The hint at the help is enough.
		DisableSuggestions: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if t.output != "table" && t.output != "json" {
				return fmt.Errorf("--output is %q, but must be table or json", t.output)
			}
			if limit, err := cmd.Flags().GetInt("limit"); err == nil && limit < 1 {
				return fmt.Errorf("--limit is %d, but must be at least 1", limit)
			}
			t.started = true
			return nil
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	flags := root.PersistentFlags()
	flags.StringVar(&t.url, "url", "", "URL of the locks (default $LOCKCTL_URL)")
	flags.StringVar(&t.store, "store", "", "URL of the sessions (default $LOCKCTL_STORE, then --url)")
	flags.StringVarP(&t.output, "output", "o", "table", "table or json")
	root.AddCommand(t.listCommand(), t.showCommand(), t.releaseCommand(), t.stopCommand(), t.sessionCommand(),
		t.doctorCommand())
	return root
}

// flagError writes an error of a flag in the words of lockctl.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	var lacking *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		kind := map[string]string{"bool": "true or false", "duration": "a time, as 10s"}[invalid.GetFlag().Value.Type()]
		return fmt.Errorf("--%s is %q, but must be %s", invalid.GetFlag().Name, invalid.GetValue(), cmp.Or(kind, "a number"))
	case errors.As(err, &lacking):
		return fmt.Errorf("--%s needs a value", lacking.GetFlag().Name)
	case errors.As(err, &unknown):
		dashes := strings.Repeat("-", min(2, len(unknown.GetSpecifiedName())))
		return fmt.Errorf("%s%s is unknown", dashes, unknown.GetSpecifiedName())
	}
	return err
}

// wants checks the arguments of a command, which have names.
func wants(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch n := len(names); {
		case len(args) < n:
			return fmt.Errorf("the argument %s is missing", names[len(args)])
		case len(args) > n:
			return fmt.Errorf("the argument %q is one too many", args[n])
		}
		return nil
	}
}

// service is an open connection to the locks of one namespace.
type service struct {
	locker    *distlock.Locker
	driver    driver.Driver
	namespace string
}

func (t *tool) lockURL() string { return cmp.Or(t.url, os.Getenv("LOCKCTL_URL")) }

// open makes a service. It sends nothing.
func (t *tool) open(ctx context.Context) (*service, error) {
	rawURL := t.lockURL()
	switch {
	case rawURL == "":
		return nil, invalid("no service is given: use --url or LOCKCTL_URL, for example redis://localhost:6379/0")
	case strings.HasPrefix(rawURL, "mem:"):
		return nil, invalid("mem:// keeps its locks in one process, which lockctl cannot reach")
	}
	locker, err := lockurl.Open(ctx, rawURL, nil)
	if err != nil {
		return nil, err
	}
	return &service{locker, fencing.Driver(locker), fencing.Options(locker).Namespace}, nil
}

func (s *service) name(key string) driver.Name { return driver.Name{Namespace: s.namespace, Key: key} }

// close waits for the end of what the service has begun.
func (s *service) close() {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	_ = s.locker.Close(ctx)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", distlock.ErrInvalidOption, fmt.Sprintf(format, args...))
}
