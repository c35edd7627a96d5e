package servers

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// BeginMove begins to move key's slot to another master, and moves the named keys. Until finish has
// moved the rest, a key that was not moved is served as before, and one that was moved, or does not
// exist, is redirected by ASK. A command on keys of which only some are here is refused with
// TRYAGAIN. Calls of finish after the first do nothing.
func (c *Cluster) BeginMove(key string, moved ...string) (finish func()) {
	c.tb.Helper()
	m, err := c.beginMove(key, moved)
	if err != nil {
		c.tb.Fatalf("begin to move a slot: %v", err)
	}
	var once sync.Once
	return func() {
		c.tb.Helper()
		once.Do(func() {
			c.tb.Helper()
			if err := m.finish(); err != nil {
				c.tb.Fatalf("move slot %s from %s to %s: %v", m.slot, m.from.Addr(), m.to.Addr(), err)
			}
		})
	}
}

// move is a slot on its way from one master to another.
type move struct {
	cluster  *Cluster
	number   int
	slot     string // the number
	from, to *Redis
}

func (c *Cluster) beginMove(key string, moved []string) (*move, error) {
	c.tb.Helper()
	from, number := c.MasterOf(key), c.slotOf(key)
	m := &move{cluster: c, number: number, slot: strconv.Itoa(number), from: from}
	var view view
	if err := await(func() (err error) { view, err = c.view(from); return err }); err != nil {
		return nil, err
	}
	for _, node := range running(without(c.nodes, from)) {
		if view[node].master == nil && view[node].slots != "" {
			m.to = node
			break
		}
	}
	if m.to == nil {
		return nil, errors.New("there is no other master")
	}

	// In this order: a slot that is on its way out already redirects.
	if _, err := m.to.Do("CLUSTER", "SETSLOT", m.slot, "IMPORTING", c.id(m.from)); err != nil {
		return nil, err
	}
	if _, err := m.from.Do("CLUSTER", "SETSLOT", m.slot, "MIGRATING", c.id(m.to)); err != nil {
		return nil, err
	}
	for _, key := range moved {
		reply, err := m.carry(key)
		if err == nil && reply != "OK" {
			err = errors.New(reply)
		}
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", key, err)
		}
	}
	return m, nil
}

// finish moves the keys that are left, one by one: what their names are made of does not matter
// then.
func (m *move) finish() error {
	for {
		left, err := m.from.Do("CLUSTER", "COUNTKEYSINSLOT", m.slot)
		if err != nil {
			return err
		}
		if left == "0" {
			break
		}
		key, err := m.from.Do("CLUSTER", "GETKEYSINSLOT", m.slot, "1")
		if err != nil {
			return err
		}
		if _, err := m.carry(key); err != nil { // NOKEY: it has just expired
			return fmt.Errorf("key %q: %w", key, err)
		}
	}
	if err := m.announce(); err != nil {
		return err
	}
	announced := time.Now()
	return await(func() error {
		owner, err := m.cluster.owner(m.number)
		if err == nil && owner != m.to {
			err = fmt.Errorf("the nodes still name %s", owner.Addr())
		}
		// Nodes that hear the news in another order may keep a former master for good.
		if err != nil && time.Since(announced) > 2*time.Second {
			announced = time.Now()
			err = errors.Join(err, m.announce())
		}
		return err
	})
}

// announce makes the new master the owner of the slot, with the highest epoch.
func (m *move) announce() error {
	// The new master comes first. Otherwise the slot has no owner for a moment.
	for _, node := range []*Redis{m.to, m.from} {
		if _, err := node.Do("CLUSTER", "SETSLOT", m.slot, "NODE", m.cluster.id(m.to)); err != nil {
			return err
		}
	}
	_, err := m.to.Do("CLUSTER", "BUMPEPOCH")
	return err
}

// carry moves one key. The reply is OK, or NOKEY if it does not exist.
func (m *move) carry(key string) (string, error) {
	return m.from.Do("MIGRATE", "127.0.0.1", strconv.Itoa(m.to.port), "", "0", "5000", "KEYS", key)
}
