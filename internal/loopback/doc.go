// Package loopback serves HTTP to programs of this machine, and to no web page that a
// browser on it shows. It listens on loopback addresses alone, and admits a request only if
// it names such an address as its host, comes from no foreign origin, and bears the token.
package loopback
