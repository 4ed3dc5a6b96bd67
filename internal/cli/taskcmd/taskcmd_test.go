package taskcmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/cli/env"
)

func TestColumnsAreFields(t *testing.T) {
	for name, paths := range columns() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, path := range paths {
			md, _ := d.(protoreflect.MessageDescriptor)
			for part := range strings.SplitSeq(path, ".") {
				fd := md.Fields().ByName(protoreflect.Name(part))
				if fd == nil {
					t.Fatalf("%s has no field %s", name, path)
				}
				md = fd.Message()
			}
		}
	}
}

func TestAnswersAsPeopleSeeThem(t *testing.T) {
	ready, blocked, done := taskv1.Status_STATUS_READY, taskv1.Status_STATUS_BLOCKED, taskv1.Status_STATUS_DONE
	tests := []struct {
		name   string
		answer proto.Message
		want   string
	}{
		{"a tree", &taskv1.TreeResponse{
			Nodes: []*taskv1.TreeNode{
				{Handle: "t1", Title: "Release", Status: ready, Below: &taskv1.Rollup{Tasks: 2, Done: 1}},
				{Handle: "t2", Title: "Build it", Status: done, Depth: 1},
				{Handle: "t3", Title: "Sign it", Status: blocked, Depth: 2},
			},
			Total: &taskv1.Rollup{Tasks: 3, Done: 1},
		}, `
total tasks  3
total done   1

NODES
HANDLE  STATUS   TITLE        DONE  TASKS
t1      ready    Release      1     2
t2      done       Build it
t3      blocked      Sign it
`},
		{"a summary", &taskv1.SummaryResponse{
			Counts: []*taskv1.StatusCount{{Status: ready, Count: 2}, {Status: blocked, Count: 1}},
			Total:  3, CostThisMonthUsd: 1.25, Next: new("t4"),
			WaitingForHuman: []*taskv1.Attention{{Handle: "t3", Title: "Sign it", Status: blocked, Reason: "only a person can do it"}},
		}, `
total                3
cost this month usd  1.25
next                 t4

COUNTS
STATUS   COUNT
ready    2
blocked  1

WAITING FOR HUMAN
HANDLE  STATUS   TITLE    REASON
t3      blocked  Sign it  only a person can do it
`},
		{"a reason", &taskv1.WhyResponse{
			Task:        &taskv1.Task{Handle: "t3", Title: "Sign it", Status: blocked},
			Explanation: "It waits for t2, which failed.",
			NextSteps:   []string{"1. Retry it with tasks__retry, or cancel what depends on it.", "2. Ask."},
		}, `
handle       t3
title        Sign it
status       blocked
explanation  It waits for t2, which failed.

NEXT STEPS
1. Retry it with compozy task retry, or cancel what depends on it.
2. Ask.
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			indent(tt.answer)
			commands(tt.answer)
			var out bytes.Buffer
			e := &env.Env{Out: &out}
			if err := e.Print(tt.answer, env.View{Columns: columns()}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
