//! The protocol: requests of a client, and their results. The handler keeps no state of clients or
//! tasks.

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock,
        CreateTaskResult, DetailedTask, GetTaskParams, GetTaskResult, Implementation, JsonObject,
        ListResourceTemplatesResult, ListToolsResult, MetaObject, PaginatedRequestParams,
        ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
        ResourceTemplate, ServerCapabilities, ServerConfig, TaskPayload, TaskStatus,
    },
    service::RequestContext,
    transport::async_rw::AsyncRwTransport,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use agenix_protocol::{documents::ActionStatus, ids::ActionId};

use crate::{
    ServeError, action, arguments,
    catalog::{INSTRUCTIONS, ToolName},
    error::{Result, ToolError},
    links,
    progress::ProgressNotifier,
    queue::Queue,
    reports::{ActionReport, ResultPage},
    resources::{self, ResourceName, TEMPLATES},
    settings::McpServerSettings,
    tasks,
    tools::{budget, cancel, check, list, logs, results, retry, run, status, wait},
};

/// Time for which `agx_run` waits before it returns a task, in seconds: short jobs need no task.
const TASK_WAIT_SECS: u64 = 2;

/// Maximum number of bytes of a message of a client. A call with the largest inputs that agq takes
/// fits, and agq refuses larger ones with its limit.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// Number of bytes of the results of a task.
const TASK_RESULT_BYTES: usize = 16 * 1024;

pub(crate) async fn serve_stdio(settings: McpServerSettings) -> std::result::Result<(), ServeError> {
    let handler = Handler::new(settings);
    let failed = |error: String| {
        ServeError(format!("the MCP client and this server do not understand each other: {error}"))
    };
    let (stdin, stdout) = rmcp::transport::stdio();
    let served = handler.serve(transport(stdin, stdout)).await.map_err(|error| failed(error.to_string()))?;
    served.waiting().await.map(drop).map_err(|error| failed(error.to_string()))
}

/// Returns the transport with a message in each line.
fn transport<R, W>(read: R, write: W) -> AsyncRwTransport<RoleServer, R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    AsyncRwTransport::new_server(read, write).with_max_line_length(MAX_MESSAGE_BYTES)
}

/// Handler of all requests. Clones share the connection to agq.
#[derive(Clone)]
pub(crate) struct Handler {
    queue: Arc<Queue>,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_tasks().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("agenix", self.queue.settings.version))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(ToolName::ALL.map(ToolName::definition).into()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let Some(tool) = ToolName::parse(&request.name) else {
            let text = format!("there is no tool {}", request.name);
            return Err(ErrorData::invalid_params(text, None));
        };
        Ok(self.call(tool, request.arguments, &context).await.unwrap_or_else(|error| failure(&error).into()))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<GetTaskResult, ErrorData> {
        let action_id = task_action(&request.task_id)?;
        let status = self.task_status(&action_id).await?;
        let report = wait::with_results(&self.queue, &status, TASK_RESULT_BYTES)
            .await
            .map_err(|error| internal(&error))?;
        let changed_at = status.completed_jobs_at.unwrap_or_else(self.queue.settings.now);
        let task = tasks::of_report(&report, status.created_at, changed_at);
        let payload = match task.status {
            TaskStatus::Completed => {
                TaskPayload::Completed { result: json_object(&of_action(&report, &context)) }
            }
            TaskStatus::Cancelled => TaskPayload::Cancelled,
            _ => TaskPayload::Working,
        };
        Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        let action_id = &task_action(&request.task_id)?;
        self.task_status(action_id).await?;
        let cancelled = self.queue.call(|mut agq| async move { agq.cancel_action(action_id).await });
        cancelled.await.map(drop).map_err(|error| internal(&error))
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourceTemplatesResult, ErrorData> {
        let templates = TEMPLATES.map(|(uri, name, description)| {
            ResourceTemplate::new(uri, name).with_description(description).with_mime_type("text/plain")
        });
        Ok(ListResourceTemplatesResult::with_all_items(templates.into()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> std::result::Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let name =
            ResourceName::parse(&uri).ok_or_else(|| resource_error(&resources::unknown(&uri), &uri))?;
        let read = name.read(&self.queue).await.map_err(|error| resource_error(&error, &uri))?;
        let mut contents = ResourceContents::text(read.text, uri);
        if !read.meta.is_empty() {
            contents = contents.with_meta(MetaObject(read.meta));
        }
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

impl Handler {
    pub(crate) fn new(settings: McpServerSettings) -> Self {
        Self { queue: Arc::new(Queue::new(settings)) }
    }

    async fn call(
        &self,
        tool: ToolName,
        arguments: Option<JsonObject>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse> {
        let queue = &self.queue;
        let result = match tool {
            ToolName::Tools => success(&list::run(queue, arguments::read(arguments)?).await?),
            ToolName::Check => success(&check::run(&queue.settings, &arguments::read(arguments)?)?),
            ToolName::Run => return self.run(arguments, context).await,
            ToolName::Wait => {
                let mut progress = ProgressNotifier::of(context, &self.queue.settings);
                of_action(&wait::run(queue, arguments::read(arguments)?, &mut progress).await?, context)
            }
            ToolName::Status => success(&status::run(queue, arguments::read(arguments)?).await?),
            ToolName::Results => {
                let arguments: arguments::ResultsArguments = arguments::read(arguments)?;
                let action_id = arguments.action_id.clone();
                let page = results::run(queue, arguments).await?;
                with_links(success(&page), (action_id.as_str(), &page), context)
            }
            ToolName::Logs => success(&logs::run(queue, arguments::read(arguments)?).await?),
            ToolName::Cancel => success(&cancel::run(queue, arguments::read(arguments)?).await?),
            ToolName::Retry => success(&retry::run(queue, arguments::read(arguments)?).await?),
            ToolName::Budget => success(&budget::run(queue, arguments::read(arguments)?).await?),
        };
        Ok(result.into())
    }

    /// Runs `agx_run`. A client that knows tasks gets one if the jobs have not ended soon.
    pub(crate) async fn run(
        &self,
        arguments: Option<JsonObject>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse> {
        let knows_tasks = context.client_capabilities().is_some_and(|client| client.supports_tasks());
        let arguments: arguments::RunArguments = arguments::read(arguments)?;
        let default = if knows_tasks { TASK_WAIT_SECS } else { arguments::default_wait_secs() };
        let (wait_secs, max_bytes) = (arguments.wait_secs.unwrap_or(default), arguments.max_bytes);
        let mut progress = ProgressNotifier::of(context, &self.queue.settings);
        let status = run::run(&self.queue, arguments, wait_secs, &mut progress).await?;
        let report = wait::with_results(&self.queue, &status, max_bytes).await?;
        if knows_tasks && !report.state.has_ended() {
            let task = tasks::of_report(&report, status.created_at, (self.queue.settings.now)());
            return Ok(CreateTaskResult::new(task).into());
        }
        Ok(of_action(&report, context).into())
    }

    /// Returns the status of the action of a task. A task of another key is unknown.
    async fn task_status(&self, action_id: &ActionId) -> std::result::Result<ActionStatus, ErrorData> {
        let found = action::find(&self.queue, action_id).await.map_err(|error| internal(&error))?;
        found.ok_or_else(|| unknown_task(action_id.as_str()))
    }
}

/// Returns the action of a task.
fn task_action(task_id: &str) -> std::result::Result<ActionId, ErrorData> {
    ActionId::new(task_id).map_err(|_| unknown_task(task_id))
}

fn unknown_task(task_id: &str) -> ErrorData {
    ErrorData::invalid_params(format!("there is no task {task_id}"), None)
}

fn internal(error: &ToolError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

/// Returns the error of a read of a resource. A failure of agq does not make the resource missing,
/// because clients may cache that a resource is missing.
fn resource_error(error: &ToolError, uri: &str) -> ErrorData {
    if error.is_of_agq() {
        return internal(error);
    }
    ErrorData::resource_not_found(error.to_string(), Some(json!({"uri": uri})))
}

/// Returns the result of a tool: a document, and the same as text for older clients.
fn success<T: Serialize>(report: &T) -> CallToolResult {
    CallToolResult::structured(serde_json::to_value(report).unwrap_or_default())
}

/// Returns the result of a tool that reports an action, with links to the rest of its results.
fn of_action(report: &ActionReport, context: &RequestContext<RoleServer>) -> CallToolResult {
    let result = success(report);
    match &report.results {
        Some(page) => with_links(result, (&report.action_id, page), context),
        None => result,
    }
}

/// Adds links to what a page leaves out.
fn with_links(
    mut result: CallToolResult,
    (action_id, page): (&str, &ResultPage),
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    result.content.extend(links::of_page(action_id, page, context.protocol_version().as_ref()));
    result
}

/// Returns the result of a tool that failed. The model reads the text.
fn failure(error: &ToolError) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(error.to_string())])
}

fn json_object(result: &CallToolResult) -> JsonObject {
    match serde_json::to_value(result) {
        Ok(Value::Object(object)) => object,
        _ => JsonObject::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use agenix_client::ClientError;
    use rmcp::{model::ErrorCode, transport::Transport};
    use serde_json::json;

    use super::{ToolError, resource_error, transport};

    #[tokio::test]
    async fn message_with_the_largest_inputs_is_read() {
        let call = |id: u32, bytes: usize| {
            let arguments = json!({"pipeline": "cat", "lines": ["x".repeat(bytes)]});
            let params = json!({"name": "agx_run", "arguments": arguments});
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        };
        let lines = format!("{}\n{}\n", call(1, 20 * 1024 * 1024), call(2, 1));
        let mut transport = transport(Cursor::new(lines.into_bytes()), tokio::io::sink());
        for id in [1, 2] {
            let message = transport.receive().await.unwrap();
            assert_eq!(serde_json::to_value(&message).unwrap()["id"], id);
        }
    }

    #[test]
    fn resource_is_not_missing_while_agq_is_away() {
        let code = |error: ToolError| resource_error(&error, "agx://job/j/stdout").code;
        assert_eq!(code(ToolError::no_job("j")), ErrorCode::RESOURCE_NOT_FOUND);
        let away = ClientError::Unreachable { address: "h:1".into(), reason: "refused".into() };
        assert_eq!(code(away.into()), ErrorCode::INTERNAL_ERROR);
    }
}
