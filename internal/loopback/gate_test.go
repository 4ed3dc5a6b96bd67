package loopback_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"compozy.dev/compozy/internal/loopback"
)

const secret = "k7Qz-2mVx9.Lw4Tr_8Yb~6Nc"

// gate serves a gate on a free port and returns the port. What it lets through is answered
// "served".
func gate(t *testing.T) string {
	t.Helper()
	token, trimmed, err := loopback.ParseToken(secret)
	if err != nil || trimmed {
		t.Fatalf("parse the token: trimmed %v, %v", trimmed, err)
	}
	listeners, err := loopback.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(listeners[0].Addr().String())
	server := &http.Server{Handler: &loopback.Gate{
		Port: addr.Port(), Token: token, Path: "/mcp",
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(w, io.MultiReader(strings.NewReader("served "), r.Body)); err != nil {
				t.Error(err)
			}
		}),
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listeners[0]) // it ends when the server is closed
	}()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return fmt.Sprint(addr.Port())
}

// exchange sends a request as it stands, but for PORT, and returns the answer.
func exchange(t *testing.T, port, request string) (*http.Response, string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, strings.ReplaceAll(strings.ReplaceAll(request, "\n", "\r\n"), "PORT", port)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestGateLetsThroughWhatIsOurs(t *testing.T) {
	t.Parallel()
	port := gate(t)
	good := "POST /mcp HTTP/1.1\nHost: 127.0.0.1:PORT\nAuthorization: Bearer " + secret + "\nContent-Type: application/json\nContent-Length: 2\nConnection: close\n\n{}"
	replaced := func(old, with string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the request", old)
		}
		return strings.Replace(good, old, with, 1)
	}
	host := func(host string) string { return replaced("Host: 127.0.0.1:PORT", "Host: "+host) }
	auth := func(header string) string { return replaced("Authorization: Bearer "+secret+"\n", header) }
	with := func(header string) string { return replaced("Connection: close", header+"\nConnection: close") }
	for name, test := range map[string]struct {
		request string
		status  int
		says    string
	}{
		"as it should be":              {good, 200, "served {}"},
		"a slash behind the path":      {replaced("/mcp", "/mcp/"), 200, "served"},
		"a query":                      {replaced("/mcp", "/mcp?x=1"), 200, "served"},
		"localhost":                    {host("LocalHost:PORT"), 200, "served"},
		"IPv6":                         {host("[::1]:PORT"), 200, "served"},
		"another loopback address":     {host("127.0.0.2:PORT"), 200, "served"},
		"a foreign host":               {host("evil.example"), 403, "Host header"},
		"a foreign host with our port": {host("evil.example:PORT"), 403, "Host header"},
		"a host that begins like ours": {host("127.0.0.1.evil.example:PORT"), 403, "Host header"},
		"a host with no port":          {host("127.0.0.1"), 403, "Host header"},
		"another port":                 {host("127.0.0.1:9"), 403, "Host header"},
		"an address of the network":    {host("192.168.1.5:PORT"), 403, "Host header"},
		"all addresses":                {host("0.0.0.0:PORT"), 403, "Host header"},
		"no host":                      {replaced("HTTP/1.1\nHost: 127.0.0.1:PORT", "HTTP/1.0"), 403, "Host header"},
		"our own origin":               {with("Origin: http://localhost:PORT"), 200, "served"},
		"a foreign origin":             {with("Origin: http://evil.example"), 403, "web pages"},
		"no origin to speak of":        {with("Origin: null"), 403, "web pages"},
		"an origin of another port":    {with("Origin: http://127.0.0.1:9"), 403, "web pages"},
		"one good origin and one bad":  {with("Origin: http://127.0.0.1:PORT\nOrigin: http://evil.example"), 403, "web pages"},
		"no token":                     {auth(""), 401, "missing"},
		"a wrong token":                {replaced("Bearer "+secret, "Bearer x"+secret), 401, "wrong"},
		"the scheme in other letters":  {replaced("Bearer ", "bEARER "), 200, "served"},
		"several blanks":               {replaced("Bearer ", "Bearer   "), 200, "served"},
		"the token alone":              {replaced("Bearer ", ""), 401, "malformed"},
		"no token behind the scheme":   {auth("Authorization: Bearer \n"), 401, "malformed"},
		"another scheme":               {replaced("Bearer ", "Token "), 401, "malformed"},
		"the scheme twice":             {replaced("Bearer ", "Bearer bearer "), 401, "malformed"},
		"two tokens":                   {replaced("Bearer "+secret, "Bearer "+secret+", Bearer "+secret), 401, "malformed"},
		"two headers":                  {with("Authorization: Bearer " + secret), 401, "malformed"},
		"the token in the query":       {strings.Replace(auth(""), "/mcp", "/mcp?token="+secret+"&access_token="+secret, 1), 401, "missing"},
		"another path":                 {replaced("/mcp", "/"), 404, "/mcp"},
		"a path with two slashes":      {replaced("/mcp", "//mcp"), 404, "/mcp"},
		"another path without a token": {strings.Replace(auth(""), "/mcp", "/", 1), 401, "missing"},
		"GET":                          {replaced("POST", "GET"), 405, "POST"},
		"DELETE":                       {replaced("POST", "DELETE"), 405, "POST"},
		"PUT":                          {replaced("POST", "PUT"), 405, "POST"},
		"OPTIONS without a token":      {strings.Replace(auth(""), "POST", "OPTIONS", 1), 401, "missing"},
		"OPTIONS":                      {replaced("POST", "OPTIONS"), 405, "POST"},
		"a content type with more":     {replaced("application/json", "Application/JSON; charset=utf-8"), 200, "served"},
		"another content type":         {replaced("application/json", "text/plain"), 415, "application/json"},
		"no content type":              {replaced("Content-Type: application/json\n", ""), 415, "application/json"},
		"health":                       {strings.Replace(auth(""), "POST /mcp", "GET /healthz", 1), 200, `{"status":"ok"}`},
		"health from elsewhere":        {strings.Replace(host("evil.example"), "/mcp", "/healthz", 1), 403, "Host header"},
		"a search for a login":         {strings.Replace(auth(""), "/mcp", "/.well-known/oauth-protected-resource", 1), 404, "no login"},
		"a registration":               {strings.Replace(auth(""), "/mcp", "/register", 1), 404, "no login"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, body := exchange(t, port, test.request) //nolint:bodyclose // it is read
			if resp.StatusCode != test.status || !strings.Contains(body, test.says) {
				t.Errorf("status %d and %s, want %d and %q", resp.StatusCode, body, test.status, test.says)
			}
			if strings.Contains(body, secret) {
				t.Errorf("the answer quotes the token: %s", body)
			}
			for header := range resp.Header {
				if strings.HasPrefix(header, "Access-Control-") || header == "Location" {
					t.Errorf("the answer has the header %s", header)
				}
			}
			if got := resp.Header.Get("WWW-Authenticate"); strings.HasPrefix(got, "Bearer") != (test.status == 401) {
				t.Errorf("WWW-Authenticate is %q", got)
			}
			if got := resp.Header.Get("Allow"); (got == "POST") != (test.status == 405) {
				t.Errorf("Allow is %q", got)
			}
			if resp.StatusCode != http.StatusOK && !json.Valid([]byte(body)) {
				t.Errorf("%s is no JSON", body)
			}
		})
	}
}

// A request whose body is endless is refused before the body is there.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	resp, body := exchange(t, gate(t), "POST /mcp HTTP/1.1\nHost: 127.0.0.1:PORT\nAuthorization: Bearer wrong\nContent-Type: application/json\nContent-Length: 200000000\n\n") //nolint:bodyclose // it is read
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "wrong") {
		t.Errorf("status %d and %s", resp.StatusCode, body)
	}
}

func TestAcceptNamesWhatIsTaken(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "text/*": false, "application/json": false, "text/event-stream": true,
		"application/json;q=0.9, Text/Event-Stream ; q=1": true,
	} {
		r := &http.Request{Header: http.Header{}}
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		if got := loopback.Accepts(r, "text/event-stream"); got != want {
			t.Errorf("Accept: %s: %v", accept, got)
		}
	}
}
