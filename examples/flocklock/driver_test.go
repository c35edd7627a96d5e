//go:build linux

package flocklock

import (
	"bytes"
	"os"
	"testing"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	service := drivertest.Service{
		New: func(tb testing.TB) driver.Driver {
			d := NewDriver(dir)
			tb.Cleanup(func() { _ = d.Close() })
			return d
		},
		PutForeign: func(name driver.Name) func() bool {
			path, data := NewDriver(dir).file(name), []byte(`{"owner": "another program"}`)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Error(err)
			}
			return func() bool {
				now, err := os.ReadFile(path)
				return err == nil && bytes.Equal(now, data)
			}
		},
	}
	if os.Geteuid() != 0 { // root has every right
		service.DenyRight = func() func() {
			if err := os.Chmod(dir, 0); err != nil {
				t.Error(err)
			}
			return func() {
				if err := os.Chmod(dir, 0o700); err != nil {
					t.Error(err)
				}
			}
		}
	}
	drivertest.Run(t, service)
}
