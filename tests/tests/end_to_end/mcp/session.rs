//! Session with `agx mcp`, message by message, in the revision 2026-07-28 of MCP.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

/// Extension of the protocol by which a call becomes a task.
const TASKS: &str = "io.modelcontextprotocol/tasks";

pub(super) struct McpSession {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
    /// Capabilities that the client declares with each request.
    capabilities: Value,
}

impl McpSession {
    /// Starts `agx mcp` for a client that knows no tasks.
    pub(super) fn start(command: &mut Command) -> Self {
        let mut child = command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output, next: 0, capabilities: json!({}) }
    }

    /// Starts `agx mcp` for a client that knows tasks.
    pub(super) fn with_tasks(command: &mut Command) -> Self {
        let mut session = Self::start(command);
        session.capabilities = json!({"extensions": {TASKS: {}}});
        session
    }

    /// Sends a request, and returns the result or the error.
    pub(super) fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.send(method, params);
        self.receive()
    }

    /// Sends a request.
    pub(super) fn send(&mut self, method: &str, mut params: Value) {
        self.next += 1;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        });
        let request = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        writeln!(self.input.as_mut().unwrap(), "{request}").unwrap();
    }

    /// Returns the result or the error of the last request.
    pub(super) fn receive(&mut self) -> Result<Value, Value> {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "agx mcp has ended");
            let mut message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == self.next {
                return match message.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(message["result"].take()),
                };
            }
        }
    }

    /// Calls a tool, and returns its result of any type.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).unwrap()
    }

    /// Calls a tool, and returns its document. Panics if the tool fails.
    #[track_caller]
    pub(super) fn document(&mut self, tool: &str, arguments: &Value) -> Value {
        let mut result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].take()
    }

    /// Calls a tool that fails, and returns its text.
    #[track_caller]
    pub(super) fn refused(&mut self, tool: &str, arguments: &Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Kills the server.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for McpSession {
    fn drop(&mut self) {
        // The server ends with its stdin.
        drop(self.input.take());
        let _ended = self.child.wait();
    }
}
