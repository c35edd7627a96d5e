package memstore

import (
	"context"
	"slices"
)

// names is how many names a page of Sessions has at most.
const names = 1000

// Sessions implements driver.Driver. Pages are in the order of the names.
func (s *service) Sessions(_ context.Context, after string) (page []string, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, each := range s.sessions {
		if s.expire(each); each.entries != nil && name > after {
			page = append(page, name)
		}
	}
	if slices.Sort(page); len(page) > names {
		page = page[:names]
		next = page[names-1]
	}
	return page, next, nil
}
