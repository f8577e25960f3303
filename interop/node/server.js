// A scripted probe server on grpc-js: does what each request says and prints what it sees.
//
// Usage: server.js REPLICA [PORT]. A line `drain` on its standard input stops it gracefully; it
// ends when its standard input does. Messages are by the descriptor set that $INTEROP_DESCRIPTORS
// names: no code is generated for it.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");
const testService = require("./testservice.js");

// Node ends a longer timer after 1 ms instead.
const LONGEST_TIMER_MS = 2 ** 31 - 1;

const [replica, port = "0"] = process.argv.slice(2);

function main() {
  const set = fs.readFileSync(process.env.INTEROP_DESCRIPTORS);
  // `defaults` leaves out what has presence: an unset pushback is not 0.
  const options = { keepCase: true, defaults: true };
  const known = loader.loadFileDescriptorSetFromBuffer(set, options);

  testService.watchCompression();
  const server = new grpc.Server(testService.OPTIONS);
  testService.addTo(server, say);
  server.addService(known["hedge.testing.v1.Probe"], {
    Get: unary("Get"),
    Put: unary("Put"),
    Watch: watch,
  });
  const insecure = grpc.ServerCredentials.createInsecure();
  server.bindAsync(`127.0.0.1:${port}`, insecure, (error, bound) => {
    if (error) throw error;
    say({ event: "ready", port: bound });
  });
  const lines = readline.createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    if (line === "drain") server.tryShutdown(() => say({ event: "drained" }));
  });
  // The driver is gone, however it went.
  lines.on("close", () => process.exit(0));
}

function unary(method) {
  return async (call, answer) => {
    const { failure, reply } = await react(method, call);
    answer(failure, reply);
  };
}

async function watch(call) {
  const { failure, reply } = await react("Watch", call);
  if (failure) {
    call.emit("error", failure);
    return;
  }
  for (let sent = 0; sent < call.request.messages; sent += 1) call.write(reply);
  call.end();
}

// What the request asks for, once it is due: a `failure` or a `reply`.
async function react(method, call) {
  const request = call.request;
  const [header] = call.metadata.get("grpc-previous-rpc-attempts");
  const previous = header === undefined ? null : Number(header);
  // Infinity without one.
  const left = Math.trunc(call.getDeadline() - Date.now());
  say({
    event: "arrived",
    id: request.id,
    method,
    previous_attempts: previous,
    timeout_ms: Number.isFinite(left) ? left : null,
  });

  const scripted = ["", replica].includes(request.only_replica);
  const slowness = request.slow_replica === replica ? request.slow_ms : 0;
  const cancelled = await hold(call, (scripted ? request.delay_ms : 0) + slowness);
  if (cancelled) {
    say({ event: "cancelled", id: request.id });
    return { failure: { code: grpc.status.CANCELLED, details: "cancelled" } };
  }

  say({ event: "finished", id: request.id });
  if (scripted && request.status !== grpc.status.OK) {
    const metadata = new grpc.Metadata();
    if ("pushback_ms" in request) {
      metadata.set("grpc-retry-pushback-ms", String(request.pushback_ms));
    }
    if ("pushback_text" in request) {
      metadata.set("grpc-retry-pushback-ms", request.pushback_text);
    }
    if (request.payload.length > 0) {
      metadata.set("grpc-status-details-bin", request.payload);
    }
    return { failure: { code: request.status, details: `scripted ${request.id}`, metadata } };
  }
  return {
    failure: null,
    reply: {
      replica,
      payload: Buffer.alloc(request.response_bytes, 7),
      id: request.id,
      previous_attempts: previous ?? 0,
    },
  };
}

// Waits for so long, or until the call is cancelled: whether it was.
function hold(call, delayMs) {
  if (call.cancelled) return true;
  if (delayMs === 0) return false;
  return new Promise((over) => {
    const timer = setTimeout(() => over(false), Math.min(delayMs, LONGEST_TIMER_MS));
    call.once("cancelled", () => {
      clearTimeout(timer);
      over(true);
    });
  });
}

// Node writes to a pipe before it goes on: nothing is held back.
function say(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

main();
