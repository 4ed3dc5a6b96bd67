package task

import (
	"context"
	"slices"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/ref"
)

// maxNodes is how many tasks of a tree are shown.
const maxNodes = 200

// defaultDepth is how many levels below its root a tree shows.
const defaultDepth = 5

// Tree shows tasks with what is below them.
func (s *Service) Tree(ctx context.Context, req *taskv1.TreeRequest) (*taskv1.TreeResponse, error) {
	depth := defaultDepth
	if req.Depth != nil {
		depth = int(req.GetDepth())
	}
	var leaves []leaf
	var root string
	err := s.view(ctx, func(st *store) error {
		if req.GetId() != "" {
			links, err := st.resolve([]ref.Named{{Path: "id", Text: req.GetId()}})
			if err != nil {
				return err
			}
			root = links[0].ID
		}
		var err error
		leaves, err = st.tree(root)
		return err
	})
	if err != nil {
		return nil, err
	}
	order := topDown(leaves, root, archivedFromProto(req.GetArchived()))
	nodes, truncated := outline(order, depth)
	return &taskv1.TreeResponse{Nodes: nodes, Truncated: truncated, Total: total(order).toProto()}, nil
}

// leaf is a task as a tree shows it.
type leaf struct {
	Link
	title    string
	parent   string // id; empty at the top
	archived bool
	cost     int64 // of its runs, in millionths of a dollar
}

// branch is a leaf at its place in the tree.
type branch struct {
	leaf
	depth int
	up    int // index of its parent; -1 for a root
}

// topDown returns the tasks that the filter lets pass, and the root whatever it is, each
// after its parent, and the children of one in the order given. What is below a task that
// is left out moves up to the nearest one that is not. It keeps its own stack, so deep
// trees are fine.
func topDown(leaves []leaf, root string, a archived) []branch {
	parent := make(map[string]string, len(leaves))
	hidden := make(map[string]bool)
	for _, l := range leaves {
		parent[l.ID] = l.parent
		hidden[l.ID] = l.ID != root && !a.passes(l.archived)
	}
	delete(parent, root)
	children := make(map[string][]leaf)
	for _, l := range leaves {
		if hidden[l.ID] {
			continue
		}
		up := parent[l.ID]
		for hidden[up] {
			up = parent[up]
		}
		children[up] = append(children[up], l)
	}
	order := make([]branch, 0, len(leaves))
	var stack []branch
	push := func(id string, depth, up int) {
		for _, l := range slices.Backward(children[id]) {
			stack = append(stack, branch{l, depth, up})
		}
	}
	push("", 0, -1)
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		order = append(order, b)
		push(b.ID, b.depth+1, len(order)-1)
	}
	return order
}

// outline returns the upper levels of the tree as far as an answer has room for them, and
// whether something was left out.
func outline(order []branch, depth int) (nodes []*taskv1.TreeNode, truncated bool) {
	below := sumsBelow(order)
	var shown []*taskv1.TreeNode
	for i, b := range order {
		if b.depth > depth {
			truncated = true
			continue
		}
		node := &taskv1.TreeNode{
			Id: b.ID, Handle: b.Handle(), Title: b.title, Status: statusToProto(b.Status),
			Depth: int32(b.depth), //nolint:gosec // at most 50
		}
		if b.up >= 0 {
			node.Parent = new(order[b.up].Handle())
		}
		if below[i].tasks > 0 {
			node.Below = below[i].toProto()
		}
		shown = append(shown, node)
	}
	nodes, more := ref.Page(shown, maxNodes, nodeSize)
	return nodes, truncated || more
}

// nodeSize returns about how many bytes the node takes as JSON.
func nodeSize(n *taskv1.TreeNode) int {
	size := 150 + ref.Quoted(n.GetTitle())
	if n.GetBelow() != nil {
		size += 60 + 40*len(n.GetBelow().GetCounts())
	}
	return size
}

// total returns what all of the tasks add up to.
func total(order []branch) *sum {
	var all sum
	for _, b := range order {
		all.add(b.leaf)
	}
	return &all
}

// sum is what a set of tasks adds up to.
type sum struct {
	tasks  int32
	counts map[Status]int32
	cost   int64
}

func (s *sum) add(l leaf) {
	if s.counts == nil {
		s.counts = make(map[Status]int32)
	}
	s.tasks++
	s.counts[l.Status]++
	s.cost += l.cost
}

func (s *sum) merge(o sum) {
	for status, n := range o.counts {
		if s.counts == nil {
			s.counts = make(map[Status]int32)
		}
		s.counts[status] += n
	}
	s.tasks += o.tasks
	s.cost += o.cost
}

func (s *sum) toProto() *taskv1.Rollup {
	return &taskv1.Rollup{Tasks: s.tasks, Done: s.counts[Done], Counts: statusCounts(s.counts), CostUsd: dollars(s.cost)}
}

// sumsBelow returns what everything below each task adds up to. Children come after their
// parents, so going backwards meets each sum when it is complete.
func sumsBelow(order []branch) []sum {
	sums := make([]sum, len(order))
	for i, b := range slices.Backward(order) {
		if b.up >= 0 {
			sums[b.up].merge(sums[i])
			sums[b.up].add(b.leaf)
		}
	}
	return sums
}
