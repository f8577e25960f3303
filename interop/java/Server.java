// A scripted probe server on grpc-java: does what each request says and prints what it sees.
//
// Usage: Server REPLICA [PORT]. A line `drain` on its standard input stops it gracefully; it ends
// when its standard input does. Messages are dynamic, by the descriptor set that
// $INTEROP_DESCRIPTORS names: no code is generated for it.

import com.google.gson.JsonObject;
import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.DescriptorValidationException;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.Descriptors.ServiceDescriptor;
import com.google.protobuf.DynamicMessage;
import io.grpc.CallOptions;
import io.grpc.Context;
import io.grpc.Deadline;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

final class Server {
    private static final String FILE = "hedge/testing/v1/probe.proto";

    // The first loads classes, the next ones start the compiler on what a call runs.
    private static final int WARM_UP_CALLS = 20;
    // Of all of them. Less than the driver waits for a server to start.
    private static final long WARM_UP_SECONDS = 30;

    private static final Metadata.Key<String> PREVIOUS_ATTEMPTS =
            Metadata.Key.of("grpc-previous-rpc-attempts", Metadata.ASCII_STRING_MARSHALLER);
    private static final Metadata.Key<String> PUSHBACK =
            Metadata.Key.of("grpc-retry-pushback-ms", Metadata.ASCII_STRING_MARSHALLER);
    private static final Metadata.Key<byte[]> DETAILS =
            Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

    private final String replica;
    private final ServiceDescriptor probe;
    // Answers when they are due. One thread is enough: nothing that it runs waits.
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();

    private Server(String replica, ServiceDescriptor probe) {
        this.replica = replica;
        this.probe = probe;
    }

    public static void main(String[] arguments) throws Exception {
        byte[] set = Files.readAllBytes(Path.of(System.getenv("INTEROP_DESCRIPTORS")));
        ServiceDescriptor probe = file(FileDescriptorSet.parseFrom(set), FILE).findServiceByName("Probe");
        Server server = new Server(arguments[0], probe);
        int port = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 0;
        io.grpc.Server running = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", port))
                .addService(server.service())
                .addService(TestService.service())
                .addStreamTracerFactory(TestService.tracer())
                .maxInboundMessageSize(TestService.MAX_MESSAGE_BYTES)
                .build()
                .start();
        server.warmUp(running.getPort());
        JsonObject ready = new JsonObject();
        ready.addProperty("event", "ready");
        ready.addProperty("port", running.getPort());
        say(ready);
        // Until the driver is gone, however it went.
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.equals("drain")) {
                server.drain(running);
            }
        }
        System.exit(0);
    }

    /** The file of this name, with all that it imports. */
    private static FileDescriptor file(FileDescriptorSet set, String name) throws DescriptorValidationException {
        Map<String, FileDescriptor> known = new HashMap<>();
        // A set has each file after those that it imports.
        for (FileDescriptorProto file : set.getFileList()) {
            FileDescriptor[] imports =
                    file.getDependencyList().stream().map(known::get).toArray(FileDescriptor[]::new);
            known.put(file.getName(), FileDescriptor.buildFrom(file, imports));
        }
        return known.get(name);
    }

    private void drain(io.grpc.Server running) {
        running.shutdown();
        Thread waiting = new Thread(() -> {
            try {
                running.awaitTermination();
                JsonObject drained = new JsonObject();
                drained.addProperty("event", "drained");
                say(drained);
            } catch (InterruptedException interrupted) {
                // The process ends: nobody asks any more.
                Thread.currentThread().interrupt();
            }
        });
        waiting.setDaemon(true);
        waiting.start();
    }

    private ServerServiceDefinition service() {
        return ServerServiceDefinition.builder(probe.getFullName())
                .addMethod(method("Get", MethodType.UNARY), handler("Get"))
                .addMethod(method("Put", MethodType.UNARY), handler("Put"))
                .addMethod(method("Watch", MethodType.SERVER_STREAMING), handler("Watch"))
                .build();
    }

    /**
     * Calls itself. The first call that a virtual machine serves loads classes for tens of
     * milliseconds; cancelled before that is over, it would never be shown to its handler.
     */
    private void warmUp(int port) {
        ManagedChannel channel =
                NettyChannelBuilder.forAddress("127.0.0.1", port).usePlaintext().build();
        Descriptor type = probe.findMethodByName("Get").getInputType();
        DynamicMessage request = DynamicMessage.newBuilder(type)
                .setField(type.findFieldByName("id"), "warm-up")
                .build();
        CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(WARM_UP_SECONDS, TimeUnit.SECONDS);
        for (int made = 0; made < WARM_UP_CALLS; made++) {
            ClientCalls.blockingUnaryCall(channel, method("Get", MethodType.UNARY), options, request);
        }
        channel.shutdownNow();
    }

    private MethodDescriptor<DynamicMessage, DynamicMessage> method(String name, MethodType type) {
        return MethodDescriptor.<DynamicMessage, DynamicMessage>newBuilder()
                .setType(type)
                .setFullMethodName(MethodDescriptor.generateFullMethodName(probe.getFullName(), name))
                .setRequestMarshaller(marshaller(probe.findMethodByName(name).getInputType()))
                .setResponseMarshaller(marshaller(probe.findMethodByName(name).getOutputType()))
                .build();
    }

    private static MethodDescriptor.Marshaller<DynamicMessage> marshaller(Descriptor type) {
        return ProtoUtils.marshaller(DynamicMessage.getDefaultInstance(type));
    }

    private ServerCallHandler<DynamicMessage, DynamicMessage> handler(String name) {
        return (call, headers) -> {
            call.request(1);
            return new Probed(name, call, headers.get(PREVIOUS_ATTEMPTS));
        };
    }

    /** Prints one event: a line that is out when this returns. */
    static void say(JsonObject event) {
        // One write of the whole line, which print streams do under a lock; flushed by its end.
        System.out.println(event);
    }

    private static Object get(DynamicMessage message, String field) {
        return message.getField(message.getDescriptorForType().findFieldByName(field));
    }

    private static String text(DynamicMessage message, String field) {
        return (String) get(message, field);
    }

    /** Java has no uint32: what is over 2^31 would be negative. */
    private static long number(DynamicMessage message, String field) {
        return Integer.toUnsignedLong((Integer) get(message, field));
    }

    /** One call. */
    private final class Probed extends ServerCall.Listener<DynamicMessage> {
        private final String method;
        private final ServerCall<DynamicMessage, DynamicMessage> call;
        private final String previousAttempts;
        // Whoever sets it says how the call ended: the timer or the cancellation.
        private final AtomicBoolean over = new AtomicBoolean();
        private DynamicMessage request;

        Probed(String method, ServerCall<DynamicMessage, DynamicMessage> call, String previousAttempts) {
            this.method = method;
            this.call = call;
            this.previousAttempts = previousAttempts;
        }

        @Override
        public void onMessage(DynamicMessage message) {
            request = message;
        }

        @Override
        public void onHalfClose() {
            Deadline deadline = Context.current().getDeadline();
            JsonObject arrived = event("arrived");
            arrived.addProperty("method", method);
            arrived.addProperty("previous_attempts", previousAttempts == null ? null : Integer.valueOf(previousAttempts));
            arrived.addProperty("timeout_ms", deadline == null ? null : deadline.timeRemaining(TimeUnit.MILLISECONDS));
            say(arrived);
            timer.schedule(this::answer, held(), TimeUnit.MILLISECONDS);
        }

        @Override
        public void onCancel() {
            // A call that is cancelled before its request is there has no name.
            if (request != null && over.compareAndSet(false, true)) {
                say(event("cancelled"));
            }
        }

        private void answer() {
            // Where it is cancelled, onCancel has been or will be called.
            if (call.isCancelled() || !over.compareAndSet(false, true)) {
                return;
            }
            say(event("finished"));
            if (scripted() && number(request, "status") != 0) {
                fail();
                return;
            }
            call.sendHeaders(new Metadata());
            DynamicMessage reply = reply();
            long messages = method.equals("Watch") ? number(request, "messages") : 1;
            for (long sent = 0; sent < messages; sent++) {
                call.sendMessage(reply);
            }
            call.close(Status.OK, new Metadata());
        }

        private void fail() {
            Metadata trailers = new Metadata();
            FieldDescriptor pushback = request.getDescriptorForType().findFieldByName("pushback_ms");
            if (request.hasField(pushback)) {
                trailers.put(PUSHBACK, request.getField(pushback).toString());
            }
            FieldDescriptor words = request.getDescriptorForType().findFieldByName("pushback_text");
            if (request.hasField(words)) {
                trailers.put(PUSHBACK, (String) request.getField(words));
            }
            ByteString details = (ByteString) get(request, "payload");
            if (!details.isEmpty()) {
                trailers.put(DETAILS, details.toByteArray());
            }
            Status status = Status.fromCodeValue((int) number(request, "status"));
            call.close(status.withDescription("scripted " + text(request, "id")), trailers);
        }

        private DynamicMessage reply() {
            byte[] payload = new byte[(int) number(request, "response_bytes")];
            Arrays.fill(payload, (byte) 7);
            Descriptor type = probe.findMethodByName(method).getOutputType();
            return DynamicMessage.newBuilder(type)
                    .setField(type.findFieldByName("replica"), replica)
                    .setField(type.findFieldByName("id"), text(request, "id"))
                    .setField(type.findFieldByName("payload"), ByteString.copyFrom(payload))
                    .setField(
                            type.findFieldByName("previous_attempts"),
                            previousAttempts == null ? 0 : Integer.parseInt(previousAttempts))
                    .build();
        }

        private long held() {
            long held = scripted() ? number(request, "delay_ms") : 0;
            return text(request, "slow_replica").equals(replica) ? held + number(request, "slow_ms") : held;
        }

        private boolean scripted() {
            String only = text(request, "only_replica");
            return only.isEmpty() || only.equals(replica);
        }

        private JsonObject event(String name) {
            JsonObject event = new JsonObject();
            event.addProperty("event", name);
            event.addProperty("id", text(request, "id"));
            return event;
        }
    }
}
