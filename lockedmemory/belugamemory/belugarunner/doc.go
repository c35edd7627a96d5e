// Package belugarunner lets the runs of Beluga's Runner follow each other, session by session, on all
// instances, and keeps the sessions on a server that all instances share.
//
// [LockRun] puts the lock of the session in front of the Runner's Run. [WrapSessions] and [WrapAgent]
// wrap the service and the agent of that Runner. [SessionService] keeps the sessions. Errors have the
// codes of package belugamemory. docs/design/runs.md and beluga-sessions.md have all states.
package belugarunner
