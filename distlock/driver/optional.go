package driver

import (
	"context"
	"time"
)

// As returns d as a T, or the nearest driver beneath d that is a T. A wrapper shows the driver beneath
// by a method Unwrap() Driver. A wrapper that is a T itself comes first; its methods return
// [errors.ErrUnsupported] if the driver beneath is none.
func As[T any](d Driver) (T, bool) {
	for d != nil {
		if t, ok := d.(T); ok {
			return t, true
		}
		wrapper, ok := d.(interface{ Unwrap() Driver })
		if !ok {
			break
		}
		d = wrapper.Unwrap()
	}
	var none T
	return none, false
}

// Listener is implemented by a Driver whose backend notifies owners. No caller relies on a notification:
// without a Listener, waiters poll.
type Listener interface {
	// Listen sends wakes of the owner to the channel until stop is called. A wake that was not received
	// is replaced by the next. Listen returns when wakes will come, or with the reason why they will
	// not; the owner may enter the queue even so. The channel is closed when no further wake will come.
	// What Listen starts ends with Close.
	Listen(ctx context.Context, name Name, owner string) (wakes <-chan Wake, stop func(), err error)
}

// Wake notifies an owner. The zero Wake means that the name may be free, or that a wake may have been
// missed: the owner asks again. A backend without a queue sends no other Wake.
type Wake struct {
	// Grant is the reply to the Acquire that the handoff answers.
	Grant AcquireReply
	// Seq is that of the owner's last request that the backend had handled before the handoff.
	Seq int64
	// TTL is how long the grant lasts from the moment of the handoff.
	TTL time.Duration
}
