package daemon_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	resourcev1 "compozy.dev/compozy/gen/compozy/resource/v1"
	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/daemon/daemontest"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage/storagetest"
)

const (
	canary = "canary" // in every text of workspace a
	keyOfA = "key-of-a"
)

// TestAnotherWorkspaceIsAnsweredLikeNothing puts references of workspace a into every
// string of every request that a facade of workspace b can make, and compares each answer
// with the one about a reference that never existed.
func TestAnotherWorkspaceIsAnsweredLikeNothing(t *testing.T) {
	for _, engine := range []storagetest.Engine{storagetest.SQLite, storagetest.Postgres} {
		t.Run(string(engine), func(t *testing.T) { testIsolation(t, storagetest.Config(t, engine).DSN) })
	}
}

func testIsolation(t *testing.T, dsn string) {
	t.Helper()
	home := daemontest.Start(t, daemontest.Options{DSN: dsn, Settings: "version = 1\n[limits]\nreads_per_second = 1e6\nreads_burst = 1000000\nwrites_per_second = 1e6\nwrites_burst = 1000000\n"})
	a, b := home.Workspace(t, "a").GetId(), home.Workspace(t, "b").GetId()
	operator := home.Operator(t)
	task, entry, document := fillWorkspace(t, operator, a)
	taskBefore, entryBefore, documentBefore := wholeOf(t, operator, a, task, entry, document)

	shared := []pair{
		{task.GetId(), ref.NewID("tsk", time.Now())},
		{keyOfA, "key-of-c"},
		{canary, "nowhere"}, // what a search would find there
	}
	pairs := map[string][]pair{ // by the service that is asked; the others share one list
		"":              append(slices.Clone(shared), pair{task.GetHandle(), "t" + strings.Repeat("9", len(task.GetHandle()))}),
		memoryService:   append(slices.Clone(shared), pair{entry.GetId(), ref.NewID("mem", time.Now())}),
		networkService:  append(slices.Clone(shared), said(t, operator, a)...),
		resourceService: append(slices.Clone(shared), pair{document.GetId(), ref.NewID("res", time.Now())}),
	}
	f, conn := rawFacade(t, home, b)
	unreached := map[string]bool{}
	for _, m := range publishedMethods(t) {
		unreached[m.name] = true
		if m.name == networkv1.NetworkService_ChannelCreate_FullMethodName {
			continue // takes no reference: what it is given is a channel's name from then on
		}
		service := ""
		for _, name := range []string{memoryService, networkService, resourceService} {
			if strings.HasPrefix(m.name, "/"+name+"/") {
				service = name
			}
		}
		for _, place := range stringsOf(m.input.Descriptor(), 3) {
			for _, shape := range shapesOf(m.input.Descriptor()) {
				for _, p := range pairs[service] {
					if p.theirs == canary && !m.read {
						continue // it would be in workspace b from then on
					}
					ask := func(reference string) answer {
						var own string
						switch service {
						case memoryService:
							own = remember(t, operator, b, ref.NewID("own", time.Now())).GetId()
						case networkService:
							own = "m1" // nothing that is there
						case resourceService:
							own = write(t, operator, b, ref.NewID("own", time.Now())[len("own_"):]).GetId()
						default:
							own = create(t, operator, b, "own").GetId()
						}
						req := m.request(b, own, shape)
						put(req.ProtoReflect(), place, reference, own)
						return m.call(t, conn, f, req)
					}
					theirs, nobodys := ask(p.theirs), ask(p.nobodys)
					if theirs.code == codes.NotFound {
						delete(unreached, m.name)
					}
					name := fmt.Sprintf("%s, %s=%q, %v", m.name, place, p.theirs, shape)
					if diff := cmp.Diff(nobodys.about(p.nobodys), theirs.about(p.theirs)); diff != "" {
						t.Errorf("%s: answer differs from the one about what never existed (-never +other):\n%s", name, diff)
					}
					secret := canary
					if p.theirs == canary {
						secret = task.GetId()
					}
					if strings.Contains(theirs.response+theirs.status, secret) {
						t.Errorf("%s: the answer tells of the other workspace: %s", name, theirs.response)
					}
				}
			}
		}
	}
	// What takes no reference that must exist. A new verb is here, or its references were
	// seen to be refused.
	want := []string{
		memoryv1.MemoryService_List_FullMethodName,
		memoryv1.MemoryService_Recall_FullMethodName,
		memoryv1.MemoryService_Store_FullMethodName,
		networkv1.NetworkService_ChannelCreate_FullMethodName,
		networkv1.NetworkService_Channels_FullMethodName,
		networkv1.NetworkService_Directs_FullMethodName,
		networkv1.NetworkService_Peers_FullMethodName,
		networkv1.NetworkService_Search_FullMethodName,
		networkv1.NetworkService_Usage_FullMethodName,
		resourcev1.ResourceService_List_FullMethodName,
		resourcev1.ResourceService_Put_FullMethodName,
		resourcev1.ResourceService_Search_FullMethodName,
		sessionv1.SessionService_Agents_FullMethodName,
		sessionv1.SessionService_Create_FullMethodName,
		sessionv1.SessionService_List_FullMethodName,
		taskv1.TaskService_Import_FullMethodName,
		taskv1.TaskService_Search_FullMethodName,
		taskv1.TaskService_Summary_FullMethodName,
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(unreached))); diff != "" {
		t.Errorf("methods that never answered not found (-want +got):\n%s", diff)
	}
	taskAfter, entryAfter, documentAfter := wholeOf(t, operator, a, task, entry, document)
	if diff := cmp.Diff(taskBefore, taskAfter, protocmp.Transform()) + cmp.Diff(entryBefore, entryAfter, protocmp.Transform()) + cmp.Diff(documentBefore, documentAfter, protocmp.Transform()); diff != "" {
		t.Errorf("the other workspace was changed:\n%s", diff)
	}
}

type pair struct{ theirs, nobodys string }

const (
	memoryService   = "compozy.memory.v1.MemoryService"
	networkService  = "compozy.network.v1.NetworkService"
	resourceService = "compozy.resource.v1.ResourceService"
)

// said has something said and offered in a workspace, and returns the references to it.
func said(t *testing.T, conn grpc.ClientConnInterface, workspace string) []pair {
	t.Helper()
	network := networkv1.NewNetworkServiceClient(conn)
	channel, err := network.ChannelCreate(t.Context(), &networkv1.ChannelCreateRequest{WorkspaceId: workspace, Name: "room-of-a", Description: canary})
	if err != nil {
		t.Fatal(err)
	}
	offer, err := network.Offer(t.Context(), &networkv1.OfferRequest{WorkspaceId: workspace, To: "#room-of-a", Title: canary, Text: canary})
	if err != nil {
		t.Fatal(err)
	}
	message, err := network.Send(t.Context(), &networkv1.SendRequest{WorkspaceId: workspace, To: "#room-of-a", Title: canary, Text: canary})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	return []pair{
		{channel.GetChannel().GetId(), ref.NewID("chn", now)},
		{"room-of-a", "room-of-c"},
		{"#room-of-a", "#room-of-c"},
		{message.GetMessage().GetId(), ref.NewID("msg", now)},
		{offer.GetWork().GetId(), ref.NewID("wrk", now)},
	}
}

// answer is what came back for a call.
type answer struct {
	code     codes.Code
	status   string // the whole status
	response string // the whole response
}

// about returns the status without the reference and without the names of what was made
// for this one call.
func (a answer) about(reference string) string {
	return names.ReplaceAllString(strings.ReplaceAll(a.status, reference, "?"), "?")
}

var names = regexp.MustCompile(`\b(((tsk|mem|res|msg|wrk|chn|dir)_)?[0-9a-v]{26}|[tmw][0-9]+)\b`)

// method is a published method.
type method struct {
	name          string
	input, output protoreflect.MessageType
	read          bool
}

// publishedMethods returns what facades can call, reads first: they see no traces of the
// writes.
func publishedMethods(t *testing.T) []method {
	t.Helper()
	var reads, writes []method
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				md := service.Methods().Get(j)
				decision, _ := proto.GetExtension(md.Options(), toolv1.E_Decision).(*toolv1.Decision)
				publish := decision.GetPublish()
				if publish == nil {
					continue
				}
				input, err := protoregistry.GlobalTypes.FindMessageByName(md.Input().FullName())
				if err != nil {
					t.Fatal(err)
				}
				output, err := protoregistry.GlobalTypes.FindMessageByName(md.Output().FullName())
				if err != nil {
					t.Fatal(err)
				}
				m := method{"/" + string(service.FullName()) + "/" + string(md.Name()), input, output, publish.GetEffect() == toolv1.Effect_EFFECT_READ}
				if m.read {
					reads = append(reads, m)
				} else {
					writes = append(writes, m)
				}
			}
		}
		return true
	})
	slices.SortFunc(writes, func(a, b method) int { return strings.Compare(a.name, b.name) })
	return append(reads, writes...)
}

// request returns a valid request: every field that must be given is.
func (m method) request(workspace, own string, s shape) proto.Message {
	req := m.input.New()
	fill(req, own)
	req.Set(req.Descriptor().Fields().ByName("workspace_id"), protoreflect.ValueOfString(workspace))
	if s.field != nil {
		req.Set(s.field, protoreflect.ValueOfEnum(s.value))
	}
	return req.Interface()
}

func (m method) call(t *testing.T, conn *grpc.ClientConn, facade string, req proto.Message) answer {
	t.Helper()
	resp := m.output.New().Interface()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "compozy-facade", facade)
	err := conn.Invoke(ctx, m.name, req, resp)
	return answer{status.Code(err), protojson.Format(status.Convert(err).Proto()), protojson.Format(resp)}
}

// shape is one value of an enum that has to be given.
type shape struct {
	field protoreflect.FieldDescriptor
	value protoreflect.EnumNumber
}

func (s shape) String() string {
	if s.field == nil {
		return "as it is"
	}
	return fmt.Sprintf("%s=%d", s.field.Name(), s.value)
}

// shapesOf returns each value of the first enum that a request must give.
func shapesOf(md protoreflect.MessageDescriptor) []shape {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if fd.Enum() == nil || !mustBeGiven(fd) {
			continue
		}
		var all []shape
		for v := 1; v < fd.Enum().Values().Len(); v++ {
			all = append(all, shape{fd, fd.Enum().Values().Get(v).Number()})
		}
		return all
	}
	return []shape{{}}
}

// path leads to a string inside a message, through the first element of each list.
type path []protoreflect.FieldDescriptor

func (p path) String() string {
	names := make([]string, len(p))
	for i, fd := range p {
		names[i] = string(fd.Name())
	}
	return strings.Join(names, ".")
}

// stringsOf returns the way to every string that a request can hold.
func stringsOf(md protoreflect.MessageDescriptor, depth int) []path {
	var all []path
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		switch {
		case fd.Kind() == protoreflect.StringKind && fd.Name() != "workspace_id" && fd.Name() != "client_key":
			all = append(all, path{fd})
		case fd.Kind() == protoreflect.MessageKind && depth > 0:
			for _, inner := range stringsOf(fd.Message(), depth-1) {
				all = append(all, append(path{fd}, inner...))
			}
		default:
		}
	}
	return all
}

// put sets the string at a path.
func put(m protoreflect.Message, p path, value, own string) {
	for _, fd := range p[:len(p)-1] {
		switch {
		case fd.IsList():
			list := m.Mutable(fd).List()
			if list.Len() == 0 {
				list.AppendMutable()
				fill(list.Get(0).Message(), own)
			}
			m = list.Get(0).Message()
		case m.Has(fd):
			m = m.Mutable(fd).Message()
		default:
			m = m.Mutable(fd).Message()
			fill(m, own)
		}
	}
	last := p[len(p)-1]
	m.Clear(last)
	if last.IsList() {
		m.Mutable(last).List().Append(protoreflect.ValueOfString(value))
		return
	}
	m.Set(last, protoreflect.ValueOfString(value))
}

// fill gives every field of a message that must be given: references to own, anything
// else as short as can be.
func fill(m protoreflect.Message, own string) {
	text := func(fd protoreflect.FieldDescriptor) protoreflect.Value {
		if fd.Name() == "id" || fd.Name() == "ids" {
			return protoreflect.ValueOfString(own)
		}
		return protoreflect.ValueOfString("x")
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !mustBeGiven(fd) {
			continue
		}
		switch {
		case fd.IsList() && fd.Message() != nil:
			m.Mutable(fd).List().AppendMutable()
			fill(m.Mutable(fd).List().Get(0).Message(), own)
		case fd.IsList() && fd.Kind() == protoreflect.StringKind:
			m.Mutable(fd).List().Append(text(fd))
		case fd.Message() != nil:
			fill(m.Mutable(fd).Message(), own)
		case fd.Enum() != nil:
			m.Set(fd, protoreflect.ValueOfEnum(fd.Enum().Values().Get(1).Number()))
		case fd.Kind() == protoreflect.StringKind:
			m.Set(fd, text(fd))
		default:
		}
	}
}

// mustBeGiven reports whether the rules of a field refuse its absence.
func mustBeGiven(fd protoreflect.FieldDescriptor) bool {
	rules, _ := proto.GetExtension(fd.Options(), validate.E_Field).(*validate.FieldRules)
	return !fd.HasOptionalKeyword() &&
		(rules.GetRequired() || rules.GetString().GetMinLen() > 0 || rules.GetRepeated().GetMinItems() > 0 || len(rules.GetEnum().GetNotIn()) > 0)
}

// rawFacade attaches to a workspace over a connection that hands out statuses as they are.
func rawFacade(t *testing.T, home *daemontest.Home, workspace string) (facade string, conn *grpc.ClientConn) {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+home.Config.Home.NewSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	f, err := home.Attach(t, conn, &facadev1.AttachRequest{Selector: &workspacev1.Selector{Reference: workspace}, AllowDestructive: true})
	if err != nil {
		t.Fatal(err)
	}
	return f.GetFacadeId(), conn
}

// fillWorkspace makes a workspace in which everything is linked with everything, and
// returns a task whose handle is above all that other workspaces will have.
func fillWorkspace(t *testing.T, conn grpc.ClientConnInterface, workspace string) (*taskv1.Task, *memoryv1.Entry, *resourcev1.Resource) {
	t.Helper()
	tasks := taskv1.NewTaskServiceClient(conn)
	for range 20 {
		drafts := make([]*taskv1.Draft, 50)
		for i := range drafts {
			drafts[i] = &taskv1.Draft{Title: canary}
		}
		if _, err := tasks.Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: workspace, Tasks: drafts}); err != nil {
			t.Fatal(err)
		}
	}
	made, err := tasks.Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: workspace, Tasks: []*taskv1.Draft{{
		Title: canary, Body: canary, Key: keyOfA, Labels: []string{canary}, Parent: "t1", DependsOn: []string{"t2"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	task := made.GetTasks()[0]
	stored, err := memoryv1.NewMemoryServiceClient(conn).Store(t.Context(), &memoryv1.StoreRequest{
		WorkspaceId: workspace, Text: canary, Key: keyOfA, Tags: []string{canary}, Source: canary,
	})
	if err != nil {
		t.Fatal(err)
	}
	resources := resourcev1.NewResourceServiceClient(conn)
	document, err := resources.Put(t.Context(), &resourcev1.PutRequest{
		WorkspaceId: workspace, Kind: resourcev1.Kind_KIND_DOCUMENT, Name: keyOfA, Text: "# " + canary, Labels: []string{canary}, Source: new(canary),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resources.Comment(t.Context(), &resourcev1.CommentRequest{WorkspaceId: workspace, Id: keyOfA, Text: canary}); err != nil {
		t.Fatal(err)
	}
	return task, stored.GetEntry(), document.GetResource()
}

func wholeOf(t *testing.T, conn grpc.ClientConnInterface, workspace string, task *taskv1.Task, entry *memoryv1.Entry, document *resourcev1.Resource) (*taskv1.GetResponse, *memoryv1.GetResponse, *resourcev1.GetResponse) {
	t.Helper()
	whole, err := taskv1.NewTaskServiceClient(conn).Get(t.Context(), &taskv1.GetRequest{WorkspaceId: workspace, Id: task.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := memoryv1.NewMemoryServiceClient(conn).Get(t.Context(), &memoryv1.GetRequest{WorkspaceId: workspace, Id: entry.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	written, err := resourcev1.NewResourceServiceClient(conn).Get(t.Context(), &resourcev1.GetRequest{WorkspaceId: workspace, Id: document.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	return whole, stored, written
}
