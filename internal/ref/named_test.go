package ref_test

import (
	"slices"
	"testing"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

func TestRefusalNamesEveryBadReference(t *testing.T) {
	names := ref.Names("ids", []string{"t1", "t2", "t3"})
	problem := func(bad ...int) func(int) error {
		return func(i int) error {
			if !slices.Contains(bad, i) {
				return nil
			}
			e := fault.New(fault.Conflict, "%s is done", names[i].Text)
			e.State = "done"
			return e
		}
	}
	tests := map[string]struct {
		err  error
		want string
	}{
		"none":               {ref.RefuseEach(names, problem()), ""},
		"two of three":       {ref.RefuseEach(names, problem(0, 2)), "ids[0]: t1 is done; ids[2]: t3 is done"},
		"one alone":          {ref.RefuseEach(names[:1], problem(0)), "t1 is done"},
		"no fields":          {ref.Refuse(fault.NotFound, nil), ""},
		"the id of a call":   {ref.Refuse(fault.NotFound, []fault.Field{{Path: "id", Problem: "t9 does not exist"}}), "t9 does not exist"},
		"one of an argument": {ref.Refuse(fault.NotFound, []fault.Field{{Path: "ids[1]", Problem: "t9 does not exist"}}), "ids[1]: t9 does not exist"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.want == "" {
				if test.err != nil {
					t.Errorf("got %v, want nothing", test.err)
				}
				return
			}
			if test.err == nil || test.err.Error() != test.want {
				t.Errorf("got %v, want %q", test.err, test.want)
			}
		})
	}
	if f := fault.As(ref.RefuseEach(names, problem(1))); f.Kind != fault.Conflict || f.State != "done" || f.Fields[0].Path != "ids[1]" {
		t.Errorf("the kind or the state of the first is lost: %+v", f)
	}
}
