package ref

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
)

// digits is the hex alphabet of RFC 4648 in lower case. It is in the order of its bytes,
// so ids sort as their UUIDs do: by time.
const digits = "0123456789abcdefghijklmnopqrstuv"

// uuidLen is how many base32 digits hold the 128 bits of a UUID.
const uuidLen = 26

// NewID returns a new id such as "tsk_06c8k8f2qrs0h5n1d3u7m4v9eg": the prefix, which is
// two to eight lower-case letters, and a version 7 UUID made of now and random bits.
// Ids sort by their millisecond; within one millisecond their order is random.
func NewID(prefix string, now time.Time) string {
	var uuid [16]byte
	binary.BigEndian.PutUint64(uuid[:], uint64(now.UnixMilli())<<16)
	// crypto/rand.Read never returns an error: it ends the program where there is no randomness.
	_, _ = rand.Read(uuid[6:])
	uuid[6] = 0x70 | uuid[6]&0x0f // version 7
	uuid[8] = 0x80 | uuid[8]&0x3f // the variant of RFC 9562
	return prefix + "_" + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(uuid[:]))
}

// IsID reports whether s has the shape of an id with the given prefix. Whether anything
// has that id is another question.
func IsID(prefix, s string) bool {
	uuid, found := strings.CutPrefix(s, prefix+"_")
	return found && isPrefix(prefix) && isUUID(uuid)
}

func isPrefix(s string) bool {
	if len(s) < 2 || len(s) > 8 {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}

func isUUID(s string) bool {
	return len(s) == uuidLen && strings.Trim(s, digits) == ""
}
