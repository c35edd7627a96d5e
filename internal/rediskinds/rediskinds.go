// Package rediskinds translates errors of package redisconn for the drivers on Redis.
package rediskinds

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// Explain is redisconn.Explain with the kinds of package driver.
func Explain(client redis.UniversalClient, name string, err error) error {
	err = redisconn.Explain(client, name, err)
	e := &explained{err, []error{err}}
	for _, k := range kinds {
		if errors.Is(err, k.own) {
			e.all = append(e.all, k.kind)
		}
	}
	return e
}

var kinds = []struct{ own, kind error }{
	{redisconn.ErrTemporary, driver.ErrTemporary},
	{redisconn.ErrRefused, driver.ErrRefused},
	{redisconn.ErrRights, driver.ErrRights},
	{redisconn.ErrForeign, driver.ErrForeign},
	{redisconn.ErrFloor, driver.ErrFloor},
	{redisconn.ErrNotDone, driver.ErrNotDone},
	{redisconn.ErrReplayed, driver.ErrReplayed},
}

// explained is an error whose kinds are no part of its text.
type explained struct {
	error
	all []error // with the kinds
}

func (e *explained) Unwrap() []error { return e.all }
