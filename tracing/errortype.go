package tracing

import (
	"fmt"
	"go/token"
	"reflect"
)

// typeOf returns the type that says most about an error: that of the first error of its chain, in the
// order of errors.Is, that is an exported type, or that wraps no other error. Types of the packages
// errors and fmt do not count. If no other type is left, typeOf returns that of the error itself.
func typeOf(err error) string {
	if found := telling(err); found != nil {
		err = found
	}
	return fmt.Sprintf("%T", err)
}

func telling(err error) error {
	if err == nil {
		return nil
	}
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var within []error
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		within = []error{err.Unwrap()}
	case interface{ Unwrap() []error }:
		within = err.Unwrap()
	}
	plain := t.PkgPath() == "errors" || t.PkgPath() == "fmt"
	if !plain && (token.IsExported(t.Name()) || len(within) == 0) {
		return err
	}
	for _, each := range within {
		if found := telling(each); found != nil {
			return found
		}
	}
	return nil
}
