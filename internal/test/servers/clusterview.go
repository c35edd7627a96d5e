package servers

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// view is what one node, or all of them, hold for the state of a cluster.
type view map[*Redis]place

// place is a node's part in a cluster.
type place struct {
	master *Redis // of a replica; nil: it is a master itself
	slots  string // "first-last" or "slot", separated by spaces
	epoch  string // when it became the master of its slots
}

// view asks one node for its view.
func (c *Cluster) view(node *Redis) (view, error) {
	text, err := node.probe("CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	v := make(view)
	for line := range strings.Lines(text) {
		// id, address, flags, master's id or "-", ping, pong, epoch, link, slots …
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("%s: malformed line in CLUSTER NODES: %q", node.Addr(), line)
		}
		other, known := c.ids[fields[0]]
		if !known {
			return nil, fmt.Errorf("%s: still shakes hands with %s", node.Addr(), fields[1])
		}
		p := place{master: c.ids[fields[3]], epoch: fields[6]}
		for _, part := range fields[8:] {
			if !strings.HasPrefix(part, "[") { // which says where a slot is being moved
				p.slots = strings.TrimSpace(p.slots + " " + part)
			}
		}
		v[other] = p
	}
	return v, nil
}

// agreed returns the view of the cluster that all running nodes have in common. It returns an error
// if they differ, or if one of them finds the cluster down.
func (c *Cluster) agreed() (view, error) {
	nodes := running(c.nodes)
	if len(nodes) == 0 {
		return nil, errors.New("no node runs")
	}
	var common view
	for _, node := range nodes {
		info, err := node.probe("CLUSTER", "INFO")
		if err != nil {
			return nil, err
		}
		if state := field(info, "cluster_state"); state != "ok" {
			return nil, fmt.Errorf("%s: the state of the cluster is %s", node.Addr(), state)
		}
		v, err := c.view(node)
		if err != nil {
			return nil, err
		}
		if len(v) != len(c.nodes) {
			return nil, fmt.Errorf("%s knows %d of %d nodes", node.Addr(), len(v), len(c.nodes))
		}
		if common != nil && !maps.Equal(v, common) {
			return nil, fmt.Errorf("%s and %s hold different views of the cluster", nodes[0].Addr(), node.Addr())
		}
		common = v
	}
	return common, nil
}

// owner returns the node that all running nodes name as the master of a slot, with the same epoch.
// A node that does not know the epoch might give a slot of its own the same one, and nodes that
// hear of both would keep the former master of one of the slots.
func (c *Cluster) owner(slot int) (*Redis, error) {
	var common *Redis
	var epoch string
	for _, node := range running(c.nodes) {
		v, err := c.view(node)
		if err != nil {
			return nil, err
		}
		owner := v.owner(slot)
		if owner == nil {
			return nil, fmt.Errorf("%s names no master", node.Addr())
		}
		if common != nil && owner != common {
			return nil, fmt.Errorf("the nodes name %s and %s", common.Addr(), owner.Addr())
		}
		if common != nil && v[owner].epoch != epoch {
			return nil, fmt.Errorf("the nodes name the epochs %s and %s of %s", epoch, v[owner].epoch, owner.Addr())
		}
		common, epoch = owner, v[owner].epoch
	}
	if common == nil {
		return nil, errors.New("no node runs")
	}
	return common, nil
}

// owner returns the master of a slot, or nil.
func (v view) owner(slot int) *Redis {
	for node, p := range v {
		for span := range strings.FieldsSeq(p.slots) {
			first, last, isRange := strings.Cut(span, "-")
			if !isRange {
				last = first
			}
			from, err1 := strconv.Atoi(first)
			to, err2 := strconv.Atoi(last)
			if err1 == nil && err2 == nil && from <= slot && slot <= to {
				return node
			}
		}
	}
	return nil
}
