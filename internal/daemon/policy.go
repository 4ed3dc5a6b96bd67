package daemon

import (
	auditv1 "compozy.dev/compozy/gen/compozy/audit/v1"
	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	resourcev1 "compozy.dev/compozy/gen/compozy/resource/v1"
	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
)

// binding says whether a method is about one workspace.
type binding int

const (
	unbound binding = iota // about the daemon, or about a target that knows its workspace
	bound                  // its request's workspace_id says which
)

// audience says who may call a method at all.
type audience int

const (
	people audience = iota // the operator, and relays that people started
	agents                 // sessions too, each about its own workspace
)

// policy is the rule of one method.
type policy struct {
	// scope is the least scope of a facade that may call it. Without one, only the
	// operator may.
	scope toolv1.Scope
	// effect is what calling it does.
	effect toolv1.Effect
	// binding says whether it is about one workspace.
	binding binding
	// audience says whether agents may call it. Their scope is asked besides, where the
	// method has one.
	audience audience
}

// policies returns the rule of every method that is served. A method without one is
// refused.
func policies() map[string]policy {
	const (
		read    = toolv1.Scope_SCOPE_READ
		operate = toolv1.Scope_SCOPE_OPERATE
		starts  = toolv1.Scope_SCOPE_LAUNCH
	)
	const (
		reads    = toolv1.Effect_EFFECT_READ
		writes   = toolv1.Effect_EFFECT_WRITE
		destroys = toolv1.Effect_EFFECT_DESTROY
	)
	return map[string]policy{
		auditv1.AuditService_List_FullMethodName: {effect: reads},

		daemonv1.DaemonService_Status_FullMethodName: {effect: reads, audience: agents},
		daemonv1.DaemonService_Stop_FullMethodName:   {effect: writes},
		daemonv1.DaemonService_Backup_FullMethodName: {effect: writes},

		facadev1.FacadeService_Attach_FullMethodName: {effect: writes, audience: agents},

		memoryv1.MemoryService_Store_FullMethodName:     {operate, writes, bound, agents},
		memoryv1.MemoryService_Update_FullMethodName:    {operate, writes, bound, agents},
		memoryv1.MemoryService_Archive_FullMethodName:   {operate, writes, bound, agents},
		memoryv1.MemoryService_Unarchive_FullMethodName: {operate, writes, bound, agents},
		memoryv1.MemoryService_Recall_FullMethodName:    {read, reads, bound, agents},
		memoryv1.MemoryService_List_FullMethodName:      {read, reads, bound, agents},
		memoryv1.MemoryService_Get_FullMethodName:       {read, reads, bound, agents},
		memoryv1.MemoryService_Forget_FullMethodName:    {operate, destroys, bound, people},

		networkv1.NetworkService_Channels_FullMethodName:       {read, reads, bound, agents},
		networkv1.NetworkService_Peers_FullMethodName:          {read, reads, bound, agents},
		networkv1.NetworkService_Threads_FullMethodName:        {read, reads, bound, agents},
		networkv1.NetworkService_ThreadMessages_FullMethodName: {read, reads, bound, agents},
		networkv1.NetworkService_Directs_FullMethodName:        {read, reads, bound, agents},
		networkv1.NetworkService_DirectMessages_FullMethodName: {read, reads, bound, agents},
		networkv1.NetworkService_Inbox_FullMethodName:          {read, reads, bound, agents},
		networkv1.NetworkService_Search_FullMethodName:         {read, reads, bound, agents},
		networkv1.NetworkService_Usage_FullMethodName:          {read, reads, bound, agents},
		networkv1.NetworkService_Work_FullMethodName:           {read, reads, bound, agents},
		networkv1.NetworkService_Wait_FullMethodName:           {read, reads, bound, agents},
		networkv1.NetworkService_Send_FullMethodName:           {operate, writes, bound, agents},
		networkv1.NetworkService_MarkRead_FullMethodName:       {operate, writes, bound, agents},
		networkv1.NetworkService_ChannelCreate_FullMethodName:  {operate, writes, bound, agents},
		networkv1.NetworkService_ChannelUpdate_FullMethodName:  {operate, writes, bound, agents},
		networkv1.NetworkService_ChannelArchive_FullMethodName: {operate, writes, bound, agents},
		networkv1.NetworkService_Offer_FullMethodName:          {operate, writes, bound, agents},
		networkv1.NetworkService_Accept_FullMethodName:         {operate, writes, bound, agents},
		networkv1.NetworkService_Settle_FullMethodName:         {operate, writes, bound, agents},
		networkv1.NetworkService_Withdraw_FullMethodName:       {operate, writes, bound, agents},

		resourcev1.ResourceService_List_FullMethodName:      {read, reads, bound, agents},
		resourcev1.ResourceService_Get_FullMethodName:       {read, reads, bound, agents},
		resourcev1.ResourceService_Search_FullMethodName:    {read, reads, bound, agents},
		resourcev1.ResourceService_History_FullMethodName:   {read, reads, bound, agents},
		resourcev1.ResourceService_Put_FullMethodName:       {operate, writes, bound, agents},
		resourcev1.ResourceService_Edit_FullMethodName:      {operate, writes, bound, agents},
		resourcev1.ResourceService_Rename_FullMethodName:    {operate, writes, bound, agents},
		resourcev1.ResourceService_Archive_FullMethodName:   {operate, writes, bound, agents},
		resourcev1.ResourceService_Unarchive_FullMethodName: {operate, writes, bound, agents},
		resourcev1.ResourceService_Label_FullMethodName:     {operate, writes, bound, agents},
		resourcev1.ResourceService_Comment_FullMethodName:   {operate, writes, bound, agents},
		resourcev1.ResourceService_Delete_FullMethodName:    {operate, destroys, bound, people},

		sessionv1.SessionService_List_FullMethodName:        {read, reads, bound, agents},
		sessionv1.SessionService_Get_FullMethodName:         {read, reads, bound, agents},
		sessionv1.SessionService_Agents_FullMethodName:      {read, reads, bound, agents},
		sessionv1.SessionService_Create_FullMethodName:      {starts, writes, bound, agents},
		sessionv1.SessionService_Send_FullMethodName:        {operate, writes, bound, agents},
		sessionv1.SessionService_Inputs_FullMethodName:      {read, reads, bound, agents},
		sessionv1.SessionService_CancelInput_FullMethodName: {operate, writes, bound, agents},
		sessionv1.SessionService_Read_FullMethodName:        {read, reads, bound, agents},
		sessionv1.SessionService_Search_FullMethodName:      {read, reads, bound, agents},
		sessionv1.SessionService_Wait_FullMethodName:        {read, reads, bound, agents},
		sessionv1.SessionService_Question_FullMethodName:    {read, reads, bound, agents},
		sessionv1.SessionService_Answer_FullMethodName:      {operate, writes, bound, people},
		sessionv1.SessionService_Interrupt_FullMethodName:   {operate, writes, bound, agents},
		sessionv1.SessionService_Stop_FullMethodName:        {operate, writes, bound, agents},
		sessionv1.SessionService_Resume_FullMethodName:      {operate, writes, bound, agents},
		sessionv1.SessionService_Rename_FullMethodName:      {operate, writes, bound, agents},
		sessionv1.SessionService_Archive_FullMethodName:     {operate, writes, bound, agents},
		sessionv1.SessionService_Unarchive_FullMethodName:   {operate, writes, bound, agents},
		sessionv1.SessionService_Diff_FullMethodName:        {read, reads, bound, agents},
		sessionv1.SessionService_Publish_FullMethodName:     {starts, writes, bound, people},
		sessionv1.SessionService_Events_FullMethodName:      {read, reads, bound, agents},
		sessionv1.SessionService_Apply_FullMethodName:       {effect: writes, binding: bound},
		sessionv1.SessionService_Watch_FullMethodName:       {effect: reads, binding: bound},
		sessionv1.SessionService_Attention_FullMethodName:   {effect: reads},

		taskv1.TaskService_List_FullMethodName:      {read, reads, bound, agents},
		taskv1.TaskService_Get_FullMethodName:       {read, reads, bound, agents},
		taskv1.TaskService_Search_FullMethodName:    {read, reads, bound, agents},
		taskv1.TaskService_Tree_FullMethodName:      {read, reads, bound, agents},
		taskv1.TaskService_Activity_FullMethodName:  {read, reads, bound, agents},
		taskv1.TaskService_Summary_FullMethodName:   {read, reads, bound, agents},
		taskv1.TaskService_Create_FullMethodName:    {operate, writes, bound, agents},
		taskv1.TaskService_Update_FullMethodName:    {operate, writes, bound, agents},
		taskv1.TaskService_Note_FullMethodName:      {operate, writes, bound, agents},
		taskv1.TaskService_Move_FullMethodName:      {operate, writes, bound, agents},
		taskv1.TaskService_Import_FullMethodName:    {operate, writes, bound, agents},
		taskv1.TaskService_Link_FullMethodName:      {operate, writes, bound, agents},
		taskv1.TaskService_Claim_FullMethodName:     {operate, writes, bound, agents},
		taskv1.TaskService_Renew_FullMethodName:     {operate, writes, bound, agents},
		taskv1.TaskService_Release_FullMethodName:   {operate, writes, bound, agents},
		taskv1.TaskService_Start_FullMethodName:     {starts, writes, bound, agents},
		taskv1.TaskService_Complete_FullMethodName:  {operate, writes, bound, agents},
		taskv1.TaskService_Fail_FullMethodName:      {operate, writes, bound, agents},
		taskv1.TaskService_Pause_FullMethodName:     {operate, writes, bound, agents},
		taskv1.TaskService_Resume_FullMethodName:    {operate, writes, bound, agents},
		taskv1.TaskService_Cancel_FullMethodName:    {operate, writes, bound, agents},
		taskv1.TaskService_Retry_FullMethodName:     {operate, writes, bound, agents},
		taskv1.TaskService_Why_FullMethodName:       {read, reads, bound, agents},
		taskv1.TaskService_Estimate_FullMethodName:  {read, reads, bound, agents},
		taskv1.TaskService_Archive_FullMethodName:   {operate, writes, bound, agents},
		taskv1.TaskService_Unarchive_FullMethodName: {operate, writes, bound, agents},
		taskv1.TaskService_Delete_FullMethodName:    {operate, destroys, bound, people},
		taskv1.TaskService_ReportRun_FullMethodName: {effect: writes},

		workspacev1.WorkspaceService_Add_FullMethodName:     {effect: writes},
		workspacev1.WorkspaceService_List_FullMethodName:    {effect: reads},
		workspacev1.WorkspaceService_Resolve_FullMethodName: {effect: reads, audience: agents},
		workspacev1.WorkspaceService_Rename_FullMethodName:  {effect: writes},
		workspacev1.WorkspaceService_Remove_FullMethodName:  {effect: writes},

		workspacev1.WorkspaceService_Trust_FullMethodName:    {effect: writes},
		workspacev1.WorkspaceService_Distrust_FullMethodName: {effect: writes},
	}
}

// allows reports whether a facade with the given scope may call the method.
func (p policy) allows(scope toolv1.Scope, destroy bool) bool {
	if p.scope == toolv1.Scope_SCOPE_UNSPECIFIED || p.scope > scope {
		return false
	}
	return p.effect != toolv1.Effect_EFFECT_DESTROY || destroy && scope >= toolv1.Scope_SCOPE_OPERATE
}
