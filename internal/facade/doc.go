// Package facade keeps the relays that are attached.
//
// A facade is one relay's binding to one workspace. It begins with an attach stream and
// belongs to the connection on which that stream arrived: every later call on the same
// connection is a call of the facade, whatever else it claims. The facade ends when its
// stream ends while the daemon runs, and what belonged to it is released at once, also
// when the relay was killed: the kernel closes its connection.
//
// A relay that an agent's client started is that session's, as its process tells: its calls
// are the session's, in the session's own workspace, and so is what they take.
//
// When the daemon itself goes away, its facades are left in the database. The next daemon
// keeps their belongings for a grace period, within which a relay attaches again with the
// secret that it was given; after it they end like the others.
package facade
