// Package trust decides until when a holder may believe that the backend keeps its lock.
//
// [Trust] is a value with the rules of time: which answer moves the deadline, and when to renew.
// [Moment] is the clock under these rules. It runs while the machine is suspended.
// docs/design/leases.md explains the rules.
package trust
