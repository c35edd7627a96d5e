// Package seam gives package fencing the functions of distlock that are not part of its public face.
// The init of distlock sets them. This package cannot import distlock, so fencing asserts the types,
// in its own init.
package seam

// The functions, named as those of package fencing.
var Locker, Join, Attach, RaiseToken, Awaited, Background, Driver, Options, KeyAttr,
	ValidKeyMode, Frees, ForWork any
