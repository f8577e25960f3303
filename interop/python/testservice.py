"""gRPC's interop service on grpcio, as its test descriptions have it.

It also prints what it sees of a call that has a name.
"""

import gzip
import time

import grpc_testing_pb2 as messages

import grpc

# More than grpcio's 4 MiB, for very_large_request.
MAX_MESSAGE_BYTES = 16 << 20

# grpcio says nowhere whether a message was compressed, so it leaves them as they come: what begins
# so is gzip, and no protobuf message, since the first byte would be a field of a type that is none.
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.per_message_decompression", 0),
)
GZIP = b"\x1f\x8b"

ECHO_INITIAL = "x-grpc-test-echo-initial"
ECHO_TRAILING = "x-grpc-test-echo-trailing-bin"


class Failure(Exception):
    """The call ends with a status that is not OK."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = next(c for c in grpc.StatusCode if c.value[0] == code)


def add_to_server(server, say):
    method = _Methods(say)
    handlers = {
        "EmptyCall": method.one_to_one("EmptyCall", messages.Empty, empty_call),
        "UnaryCall": method.one_to_one("UnaryCall", messages.SimpleRequest, unary_call),
        "StreamingOutputCall": method.one_to_many(
            "StreamingOutputCall", messages.StreamingOutputCallRequest, streaming_output_call
        ),
        "StreamingInputCall": method.many_to_one(
            "StreamingInputCall", messages.StreamingInputCallRequest, streaming_input_call
        ),
        "FullDuplexCall": method.many_to_many(
            "FullDuplexCall", messages.StreamingOutputCallRequest, full_duplex_call
        ),
    }
    service = grpc.method_handlers_generic_handler("grpc.testing.TestService", handlers)
    server.add_generic_rpc_handlers((service,))


def empty_call(_request, _context):
    return messages.Empty()


def unary_call(request, context):
    check_status(request)
    if request.response_compressed.value:
        context.set_compression(grpc.Compression.Gzip)
    return messages.SimpleResponse(payload=zeros(request.response_size))


def streaming_output_call(request, context):
    check_status(request)
    if any(response.compressed.value for response in request.response_parameters):
        context.set_compression(grpc.Compression.Gzip)
    for response in request.response_parameters:
        time.sleep(response.interval_us / 1e6)
        if not response.compressed.value:
            context.disable_next_message_compression()
        yield messages.StreamingOutputCallResponse(payload=zeros(response.size))


def streaming_input_call(requests, _context):
    size = sum(len(request.payload.body) for request in requests)
    return messages.StreamingInputCallResponse(aggregated_payload_size=size)


def full_duplex_call(requests, context):
    for request in requests:
        yield from streaming_output_call(request, context)


def check_status(request):
    if request.response_status.code:
        raise Failure(request.response_status.code, request.response_status.message)


def zeros(size):
    return messages.Payload(body=bytes(size))


class _Methods:
    """Handlers of each kind: they unpack requests, echo metadata, and say what they see."""

    def __init__(self, say):
        self.say = say

    def one_to_one(self, name, kind, serve):
        def handle(message, context):
            with _Call(self.say, name, context):
                return serve(unpacked(message, kind), context).SerializeToString()

        return grpc.unary_unary_rpc_method_handler(handle)

    def one_to_many(self, name, kind, serve):
        def handle(message, context):
            with _Call(self.say, name, context):
                for response in serve(unpacked(message, kind), context):
                    yield response.SerializeToString()

        return grpc.unary_stream_rpc_method_handler(handle)

    def many_to_one(self, name, kind, serve):
        def handle(received, context):
            with _Call(self.say, name, context):
                requests = (unpacked(message, kind) for message in received)
                return serve(requests, context).SerializeToString()

        return grpc.stream_unary_rpc_method_handler(handle)

    def many_to_many(self, name, kind, serve):
        def handle(received, context):
            with _Call(self.say, name, context):
                requests = (unpacked(message, kind) for message in received)
                for response in serve(requests, context):
                    yield response.SerializeToString()

        return grpc.stream_stream_rpc_method_handler(handle)


def unpacked(message, kind):
    compressed = message.startswith(GZIP)
    request = kind.FromString(gzip.decompress(message) if compressed else message)
    if "expect_compressed" in kind.DESCRIPTOR.fields_by_name and request.HasField("expect_compressed"):
        if request.expect_compressed.value != compressed:
            invalid = grpc.StatusCode.INVALID_ARGUMENT.value[0]
            raise Failure(invalid, "the message's compression is not as expected")
    return request


class _Call:
    """One call: echoes its metadata, ends with the failure that is raised in it."""

    def __init__(self, say, method, context):
        self.say, self.context = say, context
        metadata = dict(context.invocation_metadata())
        self.id = metadata.get("x-interop-call-id")
        if self.id is not None:
            say("arrived", id=self.id, method=method)
            if not context.add_callback(self.over):
                self.over()
        if ECHO_INITIAL in metadata:
            context.send_initial_metadata(((ECHO_INITIAL, metadata[ECHO_INITIAL]),))
        if ECHO_TRAILING in metadata:
            context.set_trailing_metadata(((ECHO_TRAILING, metadata[ECHO_TRAILING]),))

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        if self.id is not None:
            self.say("finished", id=self.id)
        if isinstance(error, Failure):
            self.context.abort(error.code, str(error))

    def over(self):
        # grpcio calls this at every end of a call, and has no public word for which it was. To a
        # handler that reads a stream a cancellation may look like the end of it.
        if self.id is not None and self.context._state.client == "cancelled":
            self.say("cancelled", id=self.id)
