package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
)

// A right is a command of ACL SETUSER, and a try of it. Redis checks the rights of a user before it looks
// at the key. No key of a try exists, and no try makes one: XX, NOMKSTREAM, an empty value and a wrong
// number of fields have no effect. So a try needs no clean-up, and works on each version of Redis.
type right struct {
	try   string // KEY stands for a key that does not exist, CHANNEL for a channel without listeners
	level Level
	lost  string // what does not work without the right
}

const (
	noLock      = "Lock operations fail."
	noSession   = "Loads and Saves fail."
	noNotice    = "Waiters are not notified, so they poll."
	noList      = "lockctl list fails."
	noAdvice    = "Ping of the store gives no advice."
	noTopology  = "go-redis does not find the nodes of the Cluster."
	noRestarts  = "No node of the quorum counts, unless RestartDelay is negative."
	noSessions  = "lockctl session list fails."
	scriptTries = "EVALSHA " + noScript + " 1 KEY\nEVAL return 1 KEY\n"
	noScript    = "0000000000000000000000000000000000000000"
)

// rightsOf are those that the packages redislock, redlock and redisstore document.
func rightsOf(s *redisServer) []right {
	var rights []right
	all := func(level Level, lost, tries string) {
		for try := range strings.Lines(tries) {
			rights = append(rights, right{strings.TrimSpace(try), level, lost})
		}
	}
	switch {
	case s.store:
		all(Problem, noSession, scriptTries+"TIME\nGET KEY\nSET KEY v XX\nEXISTS KEY\nPEXPIRE KEY 1\nPTTL KEY\nPERSIST KEY\n"+
			"UNLINK KEY\nRENAME KEY KEY\nXADD KEY NOMKSTREAM * f v\nXLEN KEY\nXRANGE KEY - +\nXREVRANGE KEY + -\n"+
			"XDEL KEY 0-1\nXTRIM KEY MAXLEN 0\nXINFO STREAM KEY\nHGET KEY f\nHSET KEY f v f\nHDEL KEY f\nHRANDFIELD KEY")
		all(Note, noSessions, "SCAN 0 COUNT 1")
		all(Note, noAdvice, "CONFIG GET maxmemory-policy")
	case s.topology == quorum:
		all(Problem, noLock, scriptTries+"GET KEY\nGETEX KEY\nSET KEY v XX\nPEXPIRE KEY 1\nPTTL KEY\nTIME")
		all(Problem, noRestarts, "INFO server")
		all(Warning, noNotice, "PUBLISH CHANNEL -\nSUBSCRIBE CHANNEL")
	default:
		all(Problem, noLock, scriptTries+"GET KEY\nGETEX KEY\nSET KEY v XX\nSETRANGE KEY 0 EMPTY\nPEXPIRE KEY 1\nPTTL KEY\nTIME\n"+
			"ZADD KEY XX 1 m\nZREM KEY m\nZRANGE KEY 0 0\nZSCORE KEY m\nZCARD KEY\nZREMRANGEBYSCORE KEY 0 0\n"+
			"HSET KEY f v f\nHGET KEY f\nHGETALL KEY\nHDEL KEY f")
		all(Warning, noNotice, "PUBLISH CHANNEL -\nSUBSCRIBE CHANNEL")
		all(Note, noList, "SCAN 0 COUNT 1")
	}
	if s.topology == cluster {
		all(Problem, noTopology, "CLUSTER SLOTS\nCOMMAND COUNT")
	}
	return rights
}

// readers are the commands of a user who may look: of lockctl without release and session delete.
const readers = "EVALSHA EVAL GET PTTL TIME SCAN ZRANGE ZCARD HGET XRANGE XREVRANGE CONFIG CLUSTER COMMAND INFO"

func (r right) reads() bool {
	command, _, _ := strings.Cut(r.try, " ")
	return slices.Contains(strings.Fields(readers), command)
}

// name is the right as ACL SETUSER takes it.
func (r right) name() string {
	words := strings.Fields(strings.ToLower(r.try))
	switch words[0] {
	case "xinfo", "memory", "config", "cluster":
		return "+" + words[0] + "|" + words[1]
	}
	return "+" + words[0]
}

// missing is what the user lacks, as ACL SETUSER takes it. A refused command is looked for first, because
// Redis 7.2 adds the name of the user, which may contain "key" or "channel".
func (r right) missing(refusal, namespace string) string {
	switch {
	case strings.Contains(refusal, "to run the"):
		return r.name()
	case strings.Contains(refusal, "channel"):
		return "&" + namespace + ":*"
	case strings.Contains(refusal, "key"):
		return "~" + namespace + ":*"
	}
	return r.name()
}

// rights tries each documented right. A user without any right to write is an operator who looks, and needs
// no other right.
func rights(ctx context.Context, s *redisServer) Finding {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	probe := s.namespace + ":{lockctl doctor " + rand.Text() + "}:probe"
	lacks, looks := map[right]string{}, true
	tried := rightsOf(s)
	for _, r := range tried {
		if err := s.try(ctx, r.try, probe); err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
			lacks[r] = r.missing(err.Error(), s.namespace)
		} else if ctx.Err() != nil {
			return result(Warning, ctx.Err().Error(), "The rights are not known.", "Run lockctl doctor again.")
		}
		refused := lacks[r] == r.name() // and GET is not
		looks = looks && (r.reads() && r.name() != "+get" || refused != r.reads())
	}
	worst, lost, missing := OK, []string{}, []string{}
	for _, r := range tried {
		if lacks[r] == "" || looks && !r.reads() {
			continue
		}
		missing, lost = appendNew(missing, lacks[r]), appendNew(lost, r.lost)
		if rank[r.level] > rank[worst] {
			worst = r.level
		}
	}
	list := strings.Join(missing, " ")
	grant := "ACL SETUSER " + s.user() + " " + list
	switch {
	case worst == OK && looks:
		return result(Note, "this user may read, and not write", "A program cannot use this user. The rights of the program's user are not known.",
			"To check them, run lockctl doctor as the user of the program.")
	case worst == OK:
		return ok("all %d rights that the documentation names", len(tried))
	case looks:
		return result(Warning, "this user may read, and not write. Missing to read: "+list, "Commands of lockctl fail.", grant)
	}
	return result(worst, "missing: "+list, strings.Join(lost, " "), grant)
}

// user is the name of the user for ACL SETUSER.
func (s *redisServer) user() string { return cmp.Or(s.client.Options().Username, "default") }

func appendNew(list []string, text string) []string {
	if slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

func (s *redisServer) try(ctx context.Context, command, key string) error {
	channel := s.namespace + ":wake:lockctl-doctor"
	if strings.HasPrefix(command, "SUBSCRIBE") {
		listener := s.client.Subscribe(ctx, channel)
		defer listener.Close()
		_, err := listener.Receive(ctx)
		return err
	}
	stand := map[string]any{"KEY": key, "CHANNEL": channel, "EMPTY": ""}
	var args []any
	for _, word := range strings.Fields(command) {
		if value, stands := stand[word]; stands {
			args = append(args, value)
		} else {
			args = append(args, word)
		}
	}
	return s.client.Do(ctx, args...).Err()
}
