package driver_test

import (
	"context"
	"testing"

	"github.com/belugalock/belugalock/distlock/driver"
)

type plain struct{ driver.Driver }

type listener struct{ plain }

func (listener) Listen(context.Context, driver.Name, string) (<-chan driver.Wake, func(), error) {
	return nil, nil, nil
}

type wrapper struct{ driver.Driver }

func (w wrapper) Unwrap() driver.Driver { return w.Driver }

type listeningWrapper struct{ wrapper }

func (listeningWrapper) Listen(context.Context, driver.Name, string) (<-chan driver.Wake, func(), error) {
	return nil, nil, nil
}

func TestAs_findsTheNearest(t *testing.T) {
	for name, c := range map[string]struct {
		in   driver.Driver
		want any
	}{
		"the driver itself":        {listener{}, listener{}},
		"beneath two wrappers":     {wrapper{wrapper{listener{}}}, listener{}},
		"a wrapper that passes on": {wrapper{listeningWrapper{wrapper{listener{}}}}, listeningWrapper{wrapper{listener{}}}},
		"in a shared driver":       {wrapper{driver.Shared{Driver: listener{}}}, listener{}},
		"none":                     {wrapper{plain{}}, nil},
		"a wrapper without Unwrap": {plain{listener{}}, nil},
		"a wrapper of nil":         {wrapper{}, nil},
		"nil":                      {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := driver.As[driver.Listener](c.in)
			if ok != (c.want != nil) || any(got) != c.want {
				t.Errorf("As is %#v, %t; want %#v", got, ok, c.want)
			}
		})
	}
}
