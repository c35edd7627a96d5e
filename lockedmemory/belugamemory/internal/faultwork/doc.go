// Package faultwork has the instances of the campaign's workload beluga: processes that run messages of
// shared sessions through Beluga's Runner. The campaign builds its test binary and starts that.
//
//	make faults WORK=beluga
package faultwork
