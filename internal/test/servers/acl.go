package servers

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// UserPassword is that of every user of SetUser.
const UserPassword = "secret"

// Rights are those of a section "Rights", in the words of ACL SETUSER. Namespaces are left open.
type Rights struct {
	Needed   []string // for everything
	Notified []string // to be notified of handoffs
	Lists    []string // to list locks
	Cluster  []string // for a Cluster, in addition
}

// DocumentedRights reads the rights that the section "Rights" of a doc.go lists, so that tests run
// with these and no others.
func DocumentedRights(tb testing.TB, file string) Rights {
	tb.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	_, text, found := strings.Cut(string(source), "// # Rights\n//\n")
	text, _, ends := strings.Cut(text, "\n//\n")
	if !found || !ends {
		tb.Fatalf("%s has no section on rights that a paragraph follows", file)
	}
	var r Rights
	for sentence := range strings.SplitSeq(strings.ReplaceAll(text, "\n// ", " "), ". ") {
		list := &r.Needed
		switch {
		case strings.HasPrefix(sentence, "To be notified"):
			list = &r.Notified
		case strings.HasPrefix(sentence, "To list"):
			list = &r.Lists
		case strings.HasPrefix(sentence, "In a Cluster"):
			list = &r.Cluster
		}
		for _, word := range strings.Fields(sentence) {
			if word = strings.TrimRight(word, ".,;"); strings.ContainsAny(word[:1], "+~&") {
				*list = append(*list, word)
			}
		}
	}
	if len(r.Needed) < 5 {
		tb.Fatalf("%s: the section on rights is read as %q", file, r)
	}
	return r
}

// Without returns the rights but one.
func (r Rights) Without(right string) Rights {
	left := func(all []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(each string) bool { return each == right })
	}
	return Rights{left(r.Needed), left(r.Notified), left(r.Lists), left(r.Cluster)}
}

// UserArgs are the arguments of a server with a user who has these rights in some namespaces, and no
// others. The user outlives a restart.
func UserArgs(user string, namespaces []string, rights ...string) []string {
	args := []string{"--user", user, "on", ">" + UserPassword}
	for _, right := range rights {
		if !strings.Contains(right, "<namespace>") {
			args = append(args, right)
			continue
		}
		for _, namespace := range namespaces {
			args = append(args, strings.ReplaceAll(right, "<namespace>", namespace))
		}
	}
	return args
}

// SetUser makes such a user on a server that runs.
func SetUser(tb testing.TB, server *Redis, user string, namespaces []string, rights ...string) {
	tb.Helper()
	command := append([]string{"ACL", "SETUSER", user, "reset"}, UserArgs(user, namespaces, rights...)[2:]...)
	for _, command := range [][]string{command, {"ACL", "LOG", "RESET"}} {
		if _, err := server.Do(command...); err != nil {
			tb.Fatal(err)
		}
	}
}

// RefusedToUsers is what a server has refused to its users since its start, or SetUser, empty for nothing.
func RefusedToUsers(tb testing.TB, server *Redis) string {
	tb.Helper()
	log, err := server.Do("ACL", "LOG")
	if err != nil {
		tb.Fatal(err)
	}
	return log
}
