package daemon

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/internal/audit"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/facade"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/redact"
	"compozy.dev/compozy/internal/storage/storagetest"
)

// built returns a daemon that does not serve.
func built(t *testing.T) *daemon {
	t.Helper()
	cfg := config.Config{Home: config.Home{Dir: filepath.Join(t.TempDir(), "home")}}
	if err := cfg.Home.Prepare(); err != nil {
		t.Fatal(err)
	}
	db := storagetest.Open(t, storagetest.SQLite)
	d, err := build(t.Context(), cfg, Options{}, db, redact.New(), slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// served returns the methods that a daemon serves, by full name.
func served(t *testing.T) map[string]protoreflect.MethodDescriptor {
	t.Helper()
	methods := map[string]protoreflect.MethodDescriptor{}
	for name := range built(t).server.GetServiceInfo() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			t.Fatal(err)
		}
		list := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range list.Len() {
			methods["/"+name+"/"+string(list.Get(i).Name())] = list.Get(i)
		}
	}
	return methods
}

func TestEveryMethodThatIsServedHasOnePolicy(t *testing.T) {
	got, want := slices.Sorted(maps.Keys(policies())), slices.Sorted(maps.Keys(served(t)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("policies differ from what is served (-served +policies):\n%s", diff)
	}
}

func TestPoliciesAreWhatTheProtoFilesDecide(t *testing.T) {
	rules := policies()
	for name, method := range served(t) {
		decision := proto.GetExtension(method.Options(), toolv1.E_Decision).(*toolv1.Decision)
		rule := rules[name]
		publish := decision.GetPublish()
		if publish == nil {
			if rule.scope != toolv1.Scope_SCOPE_UNSPECIFIED {
				t.Errorf("%s is withheld, and facades may call it at scope %s", name, rule.scope)
			}
			continue
		}
		if rule.scope != publish.GetScope() || rule.effect != publish.GetEffect() {
			t.Errorf("%s: policy has %s and %s, and the proto file %s and %s", name, rule.scope, rule.effect, publish.GetScope(), publish.GetEffect())
		}
		if rule.binding != bound {
			t.Errorf("%s is published and its policy does not bind it to a workspace", name)
		}
		if fd := method.Input().Fields().ByName("workspace_id"); fd == nil || fd.Number() != 1 || fd.Kind() != protoreflect.StringKind {
			t.Errorf("%s is published and its request has no string workspace_id = 1", name)
		}
	}
}

func TestNoFacadeMayCallWhatIsWithheld(t *testing.T) {
	for name, method := range served(t) {
		decision := proto.GetExtension(method.Options(), toolv1.E_Decision).(*toolv1.Decision)
		for _, scope := range []toolv1.Scope{toolv1.Scope_SCOPE_READ, toolv1.Scope_SCOPE_OPERATE, toolv1.Scope_SCOPE_LAUNCH} {
			for _, destroy := range []bool{false, true} {
				publish := decision.GetPublish()
				want := publish != nil && publish.GetScope() <= scope &&
					(publish.GetEffect() != toolv1.Effect_EFFECT_DESTROY || destroy && scope > toolv1.Scope_SCOPE_READ)
				if got := policies()[name].allows(scope, destroy); got != want {
					t.Errorf("%s at scope %s, destroy %t: allowed is %t, want %t", name, scope, destroy, got, want)
				}
			}
		}
	}
}

func TestAPanicIsOneFailedCall(t *testing.T) {
	db := storagetest.Open(t, storagetest.SQLite)
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	facades, err := facade.Open(t.Context(), facade.Config{DB: db, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	validator, err := protovalidate.New()
	if err != nil {
		t.Fatal(err)
	}
	ch := &chain{
		policies: policies(), facades: facades, running: nobody, db: db, validator: validator, secrets: redact.New(), logger: logger, now: time.Now,
		audit: audit.New(audit.Config{DB: db, Logger: logger, Key: []byte("key"), NewID: id("aud")}),
	}
	ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: caller{conn: 1, lineage: []process.ID{{PID: 1}}, agent: new(atomic.Pointer[Agent])}})
	_, err = ch.unary(ctx, &daemonv1.StatusRequest{}, &grpc.UnaryServerInfo{FullMethod: daemonv1.DaemonService_Status_FullMethodName},
		func(context.Context, any) (any, error) { panic("the very inside") })
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "inside") {
		t.Errorf("got %v, want an internal error that gives nothing away", err)
	}
	if !strings.Contains(log.String(), "the very inside") || !strings.Contains(log.String(), "policy_test.go") {
		t.Errorf("the log does not tell of the panic: %s", log.String())
	}
}

func TestNameOfAClientIsCutToATextThatCanBeStored(t *testing.T) {
	ch := &chain{secrets: redact.New("hunter2hunter2")}
	for given, want := range map[string]string{
		"cursor/1.2": "cursor/1.2", "": "", "a\xffb": "ab", strings.Repeat("a", 99) + "é": strings.Repeat("a", 99), strings.Repeat("a", 200): strings.Repeat("a", 100),
		strings.Repeat("a", 95) + "hunter2hunter2": strings.Repeat("a", 95) + "[reda",
	} {
		if got := ch.clientOf(metadata.Pairs(clientKey, given)); got != want {
			t.Errorf("of %q got %q, want %q", given, got, want)
		}
	}
}

// nobody is what runs where there is no session.
func nobody([]process.ID) (Agent, bool) { return Agent{}, false }
