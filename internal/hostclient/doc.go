// Package hostclient connects to the daemon's socket. Whatever goes wrong with a call
// comes back as a [fault.Error], so that nothing above this package reads gRPC statuses.
//
// A call whose connection breaks is told apart by whether anything of it was sent.
// Before that it is [fault.Unavailable]: nothing can have happened. After that it is
// [fault.OutcomeUnknown]: the daemon may have carried it out.
package hostclient
