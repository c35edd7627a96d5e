// Package belugarunner runs agents of Beluga AI v2 over sessions that many instances share:
//
//	runner, err := belugarunner.New(assistant, "redis://localhost:6379")
//	for event, err := range runner.Run(ctx, "session-4711", schema.NewHumanMessage("hello")) {
//
// The runs of a session follow each other, on all instances. Every answer that a reader sees is stored.
// [History] gives the model of the agent the turns before the question.
//
// [New] is for most programs. Its parts are for programs with a Runner or a session service of their
// own: [LockRun] puts the lock of the session in front of the Runner's Run, [WrapSessions] and
// [WrapAgent] wrap the service and the agent of that Runner, and [SessionService] keeps the sessions.
// Errors have the codes of package belugamemory. docs/design/runs.md, beluga-runner.md and
// beluga-sessions.md have all states.
package belugarunner
