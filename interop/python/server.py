"""A scripted probe server on grpcio: does what each request says and prints what it sees.

Usage: server.py REPLICA [PORT]. A line `drain` on its standard input stops it gracefully; it ends
when its standard input does.
"""

import concurrent.futures
import json
import sys
import threading

import grpc
import testservice
import tracing
from hedge.testing.v1 import probe_pb2, probe_pb2_grpc

# Each held call keeps a thread; a case holds a handful.
THREADS = 32

# Seconds that calls in flight have after `drain`. Longer than any that a case lets finish.
DRAIN = 60

_output = threading.Lock()


def say(event, **fields):
    with _output:
        print(json.dumps({"event": event, **fields}), flush=True)


class Probe(probe_pb2_grpc.ProbeServicer):
    def __init__(self, replica):
        self.replica = replica

    def react(self, method, request, context):
        metadata = dict(context.invocation_metadata())
        previous = metadata.get("grpc-previous-rpc-attempts")
        previous = None if previous is None else int(previous)
        remaining = context.time_remaining()
        say(
            "arrived",
            id=request.id,
            method=method,
            previous_attempts=previous,
            timeout_ms=None if remaining is None else int(remaining * 1000),
        )

        # grpcio calls this at every end of a call; only before the handler's own is it a
        # cancellation.
        over = threading.Event()
        if not context.add_callback(over.set):
            over.set()
        scripted = request.only_replica in ("", self.replica)
        held = request.delay_ms if scripted else 0
        if request.slow_replica == self.replica:
            held += request.slow_ms
        if held:
            over.wait(held / 1000)
        if over.is_set() or not context.is_active():
            say("cancelled", id=request.id)
            context.abort(grpc.StatusCode.CANCELLED, "cancelled")

        say("finished", id=request.id)
        if scripted and request.status:
            trailers = []
            if request.HasField("pushback_ms"):
                trailers.append(("grpc-retry-pushback-ms", str(request.pushback_ms)))
            if request.HasField("pushback_text"):
                trailers.append(("grpc-retry-pushback-ms", request.pushback_text))
            if request.payload:
                trailers.append(("grpc-status-details-bin", request.payload))
            context.set_trailing_metadata(tuple(trailers))
            code = next(c for c in grpc.StatusCode if c.value[0] == request.status)
            context.abort(code, f"scripted {request.id}")
        return probe_pb2.ProbeReply(
            replica=self.replica,
            payload=b"\7" * request.response_bytes,
            id=request.id,
            previous_attempts=previous or 0,
        )

    def Get(self, request, context):
        return self.react("Get", request, context)

    def Put(self, request, context):
        return self.react("Put", request, context)

    def Watch(self, request, context):
        reply = self.react("Watch", request, context)
        for _ in range(request.messages):
            yield reply


def drain(server):
    server.stop(DRAIN).wait()
    say("drained")


def main():
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(max_workers=THREADS),
        interceptors=tracing.interceptors(),
        options=testservice.OPTIONS,
    )
    testservice.add_to_server(server, say)
    probe_pb2_grpc.add_ProbeServicer_to_server(Probe(sys.argv[1]), server)
    port = sys.argv[2] if len(sys.argv) > 2 else "0"
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    say("ready", port=port)
    for line in sys.stdin:
        if line == "drain\n":
            threading.Thread(target=drain, args=(server,), daemon=True).start()
    server.stop(0)


if __name__ == "__main__":
    main()
