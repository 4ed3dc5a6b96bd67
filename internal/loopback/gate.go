package loopback

import (
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Gate lets requests through to one path of a handler: those that come from this machine's
// own programs, bear the token, and are a POST of JSON. The checks are made in the order of
// ServeHTTP; the body of a request that is refused is not read.
type Gate struct {
	// Port is the one that is listened on.
	Port uint16
	// Token is what requests have to bear.
	Token Token
	// Path is that of Next, such as "/mcp". With a slash behind it, it is the same.
	Path string
	// Next serves what is let through.
	Next http.Handler
}

// ServeHTTP refuses a request or has it served.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case !g.ours(r.Host):
		refuse(w, http.StatusForbidden, "the Host header names no loopback address with this port; use http://127.0.0.1:%d", g.Port)
	case !g.sameOrigin(r):
		refuse(w, http.StatusForbidden, "requests from web pages are refused; only programs of this machine are served")
	case path == "/healthz":
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	case path == "/register" || strings.HasPrefix(path, "/.well-known/"):
		// A client that was told 401 looks here for somebody who would give it a token.
		refuse(w, http.StatusNotFound, "there is no login; the client sends the token of the relay as Authorization: Bearer")
	case !g.authorized(w, r):
	case path != g.Path && path != g.Path+"/":
		refuse(w, http.StatusNotFound, "there is nothing at this path; the endpoint is %s", g.Path)
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "only POST is served; there are no sessions to read from or to delete")
	case !isJSON(r):
		refuse(w, http.StatusUnsupportedMediaType, "the content type must be application/json")
	default:
		g.Next.ServeHTTP(w, r)
	}
}

// ours reports whether a host is a loopback name or address with the port that is listened
// on: that of a web page which had its own name resolve to this machine is not.
func (g *Gate) ours(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), "80"
	}
	if port != strconv.Itoa(int(g.Port)) {
		return false
	}
	addr, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && addr.Unmap().IsLoopback()
}

// sameOrigin reports whether a request is not a web page's, but for one that came from here.
func (g *Gate) sameOrigin(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" || !g.ours(u.Host) {
			return false
		}
	}
	return true
}

// authorized reports whether a request bears the token, and refuses it if it does not.
func (g *Gate) authorized(w http.ResponseWriter, r *http.Request) bool {
	challenge := "Bearer"
	var wrong string
	switch values := r.Header.Values("Authorization"); {
	case len(values) == 0:
		wrong = "the token is missing; send it as Authorization: Bearer"
	case len(values) > 1:
		wrong = "the Authorization header is malformed: there is more than one"
	default:
		token, well := bearer(values[0])
		switch {
		case !well:
			wrong = "the Authorization header is malformed: it is the word Bearer, a blank and one token"
		case g.Token.is(token):
			return true
		default:
			challenge += ` error="invalid_token"`
			wrong = "the token is wrong; the client has to send the one that the relay was started with"
		}
	}
	w.Header().Set("WWW-Authenticate", challenge)
	refuse(w, http.StatusUnauthorized, "%s", wrong)
	return false
}

// bearer returns the one token of an Authorization header.
func bearer(header string) (token string, ok bool) {
	scheme, rest, _ := strings.Cut(header, " ")
	token = strings.Trim(rest, " ")
	ok = strings.EqualFold(scheme, "Bearer") && token != "" && !strings.ContainsFunc(token, func(c rune) bool { return !tokenCharacter(c) })
	return token, ok
}

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// Accepts reports whether a request says by name that it takes a media type.
func Accepts(r *http.Request, kind string) bool {
	return slices.ContainsFunc(r.Header.Values("Accept"), func(list string) bool {
		return slices.ContainsFunc(strings.Split(list, ","), func(entry string) bool {
			named, _, _ := strings.Cut(entry, ";")
			return strings.EqualFold(strings.TrimSpace(named), kind)
		})
	})
}

// refuse answers with an error as a client of JSON-RPC reads it: it is about no request of
// that protocol. The rest of the request is not read.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	const invalidRequest = -32600
	w.Header().Set("Connection", "close")
	answer(w, status, map[string]any{
		"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": invalidRequest, "message": fmt.Sprintf(format, args...)},
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // it fails when nobody is there to read it
}
