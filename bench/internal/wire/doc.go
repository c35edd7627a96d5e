// Package wire counts the commands that Redis clients send, where it cannot be got round: at their
// connections.
//
// A hook of a client sees only what goes through that client. A lock library may make clients of
// its own, send keepalives and subscribe; a connection sees all of it. Every client that is made
// with a [Counter]'s dialer, or with a copy of its options, is counted: each request is one
// command, also in a pipeline, where it shares its round trip with others.
//
// What sets a connection up is not counted: HELLO, AUTH, SELECT, READONLY and CLIENT with all its
// subcommands but CACHING. It is paid once per connection, not per lock.
package wire
