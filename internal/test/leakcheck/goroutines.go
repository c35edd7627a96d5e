package leakcheck

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// linger is for how long goroutines of a go-redis client may outlive it: some sleep for a second,
// or try to connect to servers that are gone, before they notice that it is closed.
const linger = 15 * time.Second

// VerifyTestMain is goleak's, for packages that work with go-redis: it waits for longer.
func VerifyTestMain(m interface{ Run() int }) {
	code := m.Run()
	if code == 0 {
		if err := ended(); err != nil {
			fmt.Fprintln(os.Stderr, "leakcheck: goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func ended() error {
	for deadline := time.Now().Add(linger); ; {
		err := goleak.Find() // which has some patience itself
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
