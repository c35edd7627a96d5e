// Package faultwork has the instances of the campaign's workload adk: processes that run questions of shared
// sessions through ADK's Runner. The campaign builds its test binary and starts that. It is a module of its
// own, because no user of adksession needs the drivers of ADK's SQL service.
//
//	make faults WORK=adk
package faultwork
