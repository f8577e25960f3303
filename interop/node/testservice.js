// gRPC's interop service on grpc-js, as its test descriptions have it.
//
// It also prints what it sees of a call that has a name.
"use strict";

const http2 = require("node:http2");
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const PROTO = path.join(__dirname, "..", "proto", "grpc_testing.proto");

// More than grpc-js's 4 MiB, for very_large_request.
const OPTIONS = { "grpc.max_receive_message_length": 16 << 20 };

const CALL_ID = "x-interop-call-id";
const ECHO_INITIAL = "x-grpc-test-echo-initial";
const ECHO_TRAILING = "x-grpc-test-echo-trailing-bin";

// A gRPC message begins with a byte of flags and four of its length.
const PREFIX_BYTES = 5;

// Of each call with an id that is open: which of the messages received so far came compressed.
const received = new Map();

// Only before grpc-js is asked for a server.
function watchCompression() {
  const create = http2.createServer;
  // grpc-js tells its handlers nothing of it, and takes the header away.
  http2.createServer = (...settings) => {
    const server = create(...settings);
    server.prependListener("stream", (stream, headers) => {
      const id = headers[CALL_ID];
      if (id === undefined) return;
      const compressed = [];
      received.set(id, compressed);
      stream.once("close", () => received.delete(id));
      let prefix = Buffer.alloc(0);
      // Bytes of the current message that have not come yet.
      let left = 0;
      stream.on("data", (chunk) => {
        let data = chunk;
        while (data.length > 0) {
          const body = Math.min(left, data.length);
          left -= body;
          data = data.subarray(body);
          if (data.length === 0) break;
          const missing = PREFIX_BYTES - prefix.length;
          prefix = Buffer.concat([prefix, data.subarray(0, missing)]);
          data = data.subarray(missing);
          if (prefix.length < PREFIX_BYTES) break;
          compressed.push(prefix.readUInt8(0) === 1);
          left = prefix.readUInt32BE(1);
          prefix = Buffer.alloc(0);
        }
      });
    });
    return server;
  };
}

function addTo(server, say) {
  const definition = loader.loadSync(PROTO, { keepCase: true, defaults: true });
  server.addService(definition["grpc.testing.TestService"], {
    EmptyCall: told(say, "EmptyCall", emptyCall),
    UnaryCall: told(say, "UnaryCall", unaryCall),
    StreamingOutputCall: told(say, "StreamingOutputCall", streamingOutputCall),
    StreamingInputCall: told(say, "StreamingInputCall", streamingInputCall),
    FullDuplexCall: told(say, "FullDuplexCall", fullDuplexCall),
  });
}

function emptyCall(call, answer) {
  answer(null, {});
}

function unaryCall(call, answer) {
  const failure = failureOf(call.request, compressionOf(call)[0]);
  if (failure) answer(failure);
  else answer(null, { payload: zeros(call.request.response_size) }, trailers(call));
}

async function streamingOutputCall(call) {
  const failure = failureOf(call.request);
  if (failure) {
    call.emit("error", failure);
    return;
  }
  await respond(call, call.request);
  call.end(trailers(call));
}

function streamingInputCall(call, answer) {
  let messages = 0;
  let size = 0;
  let failed = false;
  call.on("data", (request) => {
    if (failed) return;
    const failure = failureOf(request, compressionOf(call)[messages]);
    messages += 1;
    size += request.payload?.body.length ?? 0;
    if (failure) {
      failed = true;
      answer(failure);
    }
  });
  call.on("end", () => {
    if (!failed) answer(null, { aggregated_payload_size: size });
  });
}

function fullDuplexCall(call) {
  // One request after the other, whatever each of them waits for.
  let served = Promise.resolve();
  let failed = false;
  call.on("data", (request) => {
    served = served.then(() => {
      if (failed) return null;
      const failure = failureOf(request);
      if (!failure) return respond(call, request);
      failed = true;
      call.emit("error", failure);
      return null;
    });
  });
  call.on("end", () => {
    served = served.then(() => {
      if (!failed) call.end(trailers(call));
    });
  });
}

async function respond(call, request) {
  for (const { size, interval_us: intervalUs } of request.response_parameters) {
    if (intervalUs > 0) await new Promise((over) => setTimeout(over, intervalUs / 1000));
    call.write({ payload: zeros(size) });
  }
}

// The failure that a request asks for, or that it is because of its own compression.
function failureOf(request, compressed) {
  const wanted = request.response_status;
  if (wanted?.code) return { code: wanted.code, details: wanted.message };
  const responses = [request.response_compressed];
  for (const response of request.response_parameters ?? []) responses.push(response.compressed);
  if (responses.some((response) => response?.value)) {
    return {
      code: grpc.status.UNIMPLEMENTED,
      details: "a grpc-js server compresses no response",
    };
  }
  const expected = request.expect_compressed;
  if (expected && expected.value !== compressed) {
    return {
      code: grpc.status.INVALID_ARGUMENT,
      details: "the message's compression is not as expected",
    };
  }
  return null;
}

function compressionOf(call) {
  return received.get(call.metadata.get(CALL_ID)[0]) ?? [];
}

function zeros(size) {
  return { body: Buffer.alloc(size) };
}

function trailers(call) {
  const metadata = new grpc.Metadata();
  for (const value of call.metadata.get(ECHO_TRAILING)) metadata.set(ECHO_TRAILING, value);
  return metadata;
}

// Echoes the headers of a call, says that it has arrived, and how it ends.
function told(say, method, serve) {
  return (call, answer) => {
    const [id] = call.metadata.get(CALL_ID);
    const end = (event) => {
      if (id !== undefined) say({ event, id });
    };
    if (id !== undefined) say({ event: "arrived", id, method });
    call.once("cancelled", () => end("cancelled"));
    const initial = call.metadata.get(ECHO_INITIAL);
    if (initial.length > 0) {
      const headers = new grpc.Metadata();
      headers.set(ECHO_INITIAL, initial[0]);
      call.sendMetadata(headers);
    }
    if (answer) {
      serve(call, (...outcome) => {
        end("finished");
        answer(...outcome);
      });
      return;
    }
    call.once("finish", () => end("finished"));
    serve(call);
  };
}

module.exports = { OPTIONS, addTo, watchCompression };
