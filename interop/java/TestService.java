// grpc-java's own interop service, and around it what its cases ask of a server that it leaves out:
// which messages are compressed. It also prints what it sees of a call that has a name.

import io.grpc.Context;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerInterceptors;
import io.grpc.ServerServiceDefinition;
import io.grpc.ServerStreamTracer;
import io.grpc.Status;
import io.grpc.testing.integration.Messages.BoolValue;
import io.grpc.testing.integration.Messages.ResponseParameters;
import io.grpc.testing.integration.Messages.SimpleRequest;
import io.grpc.testing.integration.Messages.StreamingInputCallRequest;
import io.grpc.testing.integration.Messages.StreamingOutputCallRequest;
import io.grpc.testing.integration.TestServiceImpl;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicBoolean;

final class TestService {
    /** More than grpc-java's 4 MiB, for very_large_request. */
    static final int MAX_MESSAGE_BYTES = 16 << 20;

    private static final Metadata.Key<String> CALL_ID =
            Metadata.Key.of("x-interop-call-id", Metadata.ASCII_STRING_MARSHALLER);

    /** Of each message of a call that its handler has not seen yet: whether it came compressed. */
    private static final Context.Key<Queue<Boolean>> COMPRESSED = Context.key("compressed");

    private TestService() {}

    static ServerServiceDefinition service() {
        List<ServerInterceptor> interceptors = new ArrayList<>(TestServiceImpl.interceptors());
        interceptors.add(new Compressing());
        // The last one is the outermost.
        interceptors.add(new Telling());
        return ServerInterceptors.intercept(
                new TestServiceImpl(Executors.newSingleThreadScheduledExecutor()), interceptors);
    }

    /** Learns which messages come compressed; grpc-java tells nobody else. */
    static ServerStreamTracer.Factory tracer() {
        return new ServerStreamTracer.Factory() {
            @Override
            public ServerStreamTracer newServerStreamTracer(String method, Metadata headers) {
                return new Received();
            }
        };
    }

    private static final class Received extends ServerStreamTracer {
        private final Queue<Boolean> compressed = new ConcurrentLinkedQueue<>();

        @Override
        public Context filterContext(Context context) {
            return context.withValue(COMPRESSED, compressed);
        }

        @Override
        public void inboundMessageRead(int number, long wireBytes, long bytes) {
            // Of one that is compressed the size is not known yet.
            compressed.add(bytes < 0);
        }
    }

    /** Refuses a message that is not as it says; compresses the responses that a request names. */
    private static final class Compressing implements ServerInterceptor {
        @Override
        public <Q, R> ServerCall.Listener<Q> interceptCall(
                ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
            Queue<Boolean> requests = COMPRESSED.get();
            Queue<Boolean> responses = new ConcurrentLinkedQueue<>();
            AtomicBoolean refused = new AtomicBoolean();
            ServerCall<Q, R> compressing = new SimpleForwardingServerCall<Q, R>(call) {
                @Override
                public void sendMessage(R message) {
                    Boolean compressed = responses.poll();
                    if (compressed != null) {
                        setMessageCompression(compressed);
                    }
                    super.sendMessage(message);
                }

                @Override
                public void close(Status status, Metadata trailers) {
                    if (!refused.get()) {
                        super.close(status, trailers);
                    }
                }
            };
            return new SimpleForwardingServerCallListener<Q>(next.startCall(compressing, headers)) {
                @Override
                public void onMessage(Q message) {
                    Boolean compressed = requests.poll();
                    BoolValue expected = expected(message);
                    if (expected != null && expected.getValue() != Boolean.TRUE.equals(compressed)) {
                        refused.set(true);
                        Status status = Status.INVALID_ARGUMENT.withDescription(
                                "the message's compression is not as expected");
                        call.close(status, new Metadata());
                        return;
                    }
                    if (message instanceof StreamingOutputCallRequest request) {
                        compressResponses(request);
                    }
                    super.onMessage(message);
                }

                @Override
                public void onHalfClose() {
                    // A handler that was shown no message would not understand.
                    if (!refused.get()) {
                        super.onHalfClose();
                    }
                }

                private void compressResponses(StreamingOutputCallRequest request) {
                    for (ResponseParameters response : request.getResponseParametersList()) {
                        // Before the headers, which say so; the service sends them with the first.
                        if (response.getCompressed().getValue() && responses.isEmpty()) {
                            call.setCompression("gzip");
                        }
                        responses.add(response.getCompressed().getValue());
                    }
                }
            };
        }

        private static BoolValue expected(Object message) {
            if (message instanceof SimpleRequest request && request.hasExpectCompressed()) {
                return request.getExpectCompressed();
            }
            if (message instanceof StreamingInputCallRequest request && request.hasExpectCompressed()) {
                return request.getExpectCompressed();
            }
            return null;
        }
    }

    /** Says that a call has arrived, and how it ended. */
    private static final class Telling implements ServerInterceptor {
        @Override
        public <Q, R> ServerCall.Listener<Q> interceptCall(
                ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
            String id = headers.get(CALL_ID);
            if (id == null) {
                return next.startCall(call, headers);
            }
            say("arrived", id, call.getMethodDescriptor().getBareMethodName());
            ServerCall<Q, R> telling = new SimpleForwardingServerCall<Q, R>(call) {
                @Override
                public void close(Status status, Metadata trailers) {
                    say("finished", id, null);
                    super.close(status, trailers);
                }
            };
            return new SimpleForwardingServerCallListener<Q>(next.startCall(telling, headers)) {
                @Override
                public void onCancel() {
                    say("cancelled", id, null);
                    super.onCancel();
                }
            };
        }

        private static void say(String what, String id, String method) {
            JsonObject event = new JsonObject();
            event.addProperty("event", what);
            event.addProperty("id", id);
            if (method != null) {
                event.addProperty("method", method);
            }
            Server.say(event);
        }
    }
}
