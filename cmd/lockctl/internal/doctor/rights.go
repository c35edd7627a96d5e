package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
)

// A right is a command of ACL SETUSER, and a try of it. Redis checks the rights of a user before it looks
// at the key. No key of a try exists, and no try makes one: XX, NOMKSTREAM, a wrong offset and a wrong number
// of fields have no effect. So a try needs no clean-up, and works on each version of Redis.
type right struct {
	try   string // KEY stands for a key that does not exist, CHANNEL for a channel without listeners
	level Level
}

// lost is what does not work without a right.
var lost = map[Level]string{
	Problem: "Operations fail.",
	Warning: "Waiters are not notified, so they poll.",
	Note:    "lockctl list or Ping of the store shows less, or an inbox is not swept.",
}

const scriptTries = "EVALSHA 0000000000000000000000000000000000000000 1 KEY\nEVAL return 1 KEY\n"

// rightsOf are those that the packages redislock, redlock and redisstore document, the most needed first.
func rightsOf(s *redisServer) []right {
	var rights []right
	all := func(level Level, tries string) {
		for try := range strings.Lines(tries) {
			rights = append(rights, right{strings.TrimSpace(try), level})
		}
	}
	if s.topology == cluster {
		all(Problem, "CLUSTER SLOTS\nCOMMAND COUNT")
	}
	switch {
	case s.store:
		all(Problem, scriptTries+"TIME\nGET KEY\nSET KEY v XX\nEXISTS KEY\nPEXPIRE KEY 1\nPTTL KEY\nPERSIST KEY\n"+
			"UNLINK KEY\nRENAME KEY KEY\nXADD KEY NOMKSTREAM * f v\nXLEN KEY\nXRANGE KEY - +\nXREVRANGE KEY + -\n"+
			"XDEL KEY 0-1\nXTRIM KEY MAXLEN 0\nXINFO STREAM KEY\nHGET KEY f\nHSET KEY f v f\nHDEL KEY f\nHRANDFIELD KEY\n"+
			"ZADD KEY XX 1 m\nZRANGE KEY 0 0\nZREMRANGEBYSCORE KEY 0 0")
		all(Note, "SCAN 0 COUNT 1\nZSCAN KEY 0\nCONFIG GET maxmemory-policy")
	case s.topology == quorum:
		all(Problem, scriptTries+"GET KEY\nGETEX KEY\nSET KEY v XX\nPEXPIRE KEY 1\nPTTL KEY\nTIME\nINFO server")
		all(Warning, "PUBLISH CHANNEL -\nSUBSCRIBE CHANNEL")
	default:
		all(Problem, scriptTries+"GET KEY\nGETEX KEY\nSET KEY v XX\nSETRANGE KEY -1 v\nPEXPIRE KEY 1\nPTTL KEY\nTIME\n"+
			"ZADD KEY XX 1 m\nZREM KEY m\nZRANGE KEY 0 0\nZSCORE KEY m\nZCARD KEY\nZREMRANGEBYSCORE KEY 0 0\n"+
			"HSET KEY f v f\nHGET KEY f\nHGETALL KEY\nHDEL KEY f")
		all(Warning, "PUBLISH CHANNEL -\nSUBSCRIBE CHANNEL")
		all(Note, "SCAN 0 COUNT 1")
	}
	return rights
}

// name is the right as ACL SETUSER takes it.
func (r right) name() string {
	words := strings.Fields(strings.ToLower(r.try))
	switch words[0] {
	case "xinfo", "config", "cluster":
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

// rights tries each documented right. A user who may neither set a key nor its end is an operator who looks,
// and needs no other right.
func rights(ctx context.Context, s *redisServer) Finding {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	probe := s.namespace + ":{lockctl-doctor-" + rand.Text() + "}:probe"
	worst, missing := OK, []string{}
	tried := rightsOf(s)
	for _, r := range tried {
		err := s.try(ctx, r.try, probe)
		if ctx.Err() != nil {
			return result(Warning, ctx.Err().Error(), "The rights are not known.", "Run lockctl doctor again.")
		}
		if err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			continue
		}
		if lacks := r.missing(err.Error(), s.namespace); !slices.Contains(missing, lacks) {
			missing = append(missing, lacks)
		}
		if worst == OK { // the rights come in the order of their levels
			worst = r.level
		}
	}
	switch {
	case worst == OK:
		return ok("all %d rights that the documentation names", len(tried))
	case slices.Contains(missing, "+set") && slices.Contains(missing, "+pexpire"):
		return result(Note, "this user may not write",
			"A program cannot use this user. The rights of the program's user are not known.",
			"To check them, run lockctl doctor as the user of the program.")
	}
	list := strings.Join(missing, " ")
	user := cmp.Or(s.client.Options().Username, "default")
	return result(worst, "missing: "+list, lost[worst], "ACL SETUSER "+user+" "+list)
}

func (s *redisServer) try(ctx context.Context, command, key string) error {
	channel := s.namespace + ":wake:lockctl-doctor"
	if strings.HasPrefix(command, "SUBSCRIBE") {
		listener := s.client.Subscribe(ctx, channel)
		defer listener.Close()
		_, err := listener.Receive(ctx)
		return err
	}
	var args []any
	for _, word := range strings.Fields(command) {
		args = append(args, strings.NewReplacer("KEY", key, "CHANNEL", channel).Replace(word))
	}
	return s.client.Do(ctx, args...).Err()
}
