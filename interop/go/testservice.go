// grpc-go's own interop service, and around it what its cases ask of a server that it leaves out:
// which messages are compressed. It also prints what it sees of a call that has a name.

package main

import (
	"context"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// The header that names a call.
const callID = "x-interop-call-id"

// More than grpc-go's 4 MiB, for very_large_request.
const maxMessageBytes = 16 << 20

func testServiceOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.StatsHandler(received{}),
		grpc.ChainUnaryInterceptor(unaryTest),
		grpc.ChainStreamInterceptor(streamTest),
	}
}

func registerTestService(server *grpc.Server) {
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
}

func isTest(method string) bool {
	return strings.HasPrefix(method, "/grpc.testing.TestService/")
}

func unaryTest(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !isTest(info.FullMethod) {
		return handler(ctx, request)
	}
	defer told(ctx, info.FullMethod)()
	if err := checkCompressed(ctx, request); err != nil {
		return nil, err
	}
	if wanted, ok := request.(interface{ GetResponseCompressed() *testgrpc.BoolValue }); ok {
		name := "identity"
		if wanted.GetResponseCompressed().GetValue() {
			name = gzip.Name
		}
		if err := grpc.SetSendCompressor(ctx, name); err != nil {
			return nil, err
		}
	}
	return handler(ctx, request)
}

func streamTest(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !isTest(info.FullMethod) {
		return handler(service, stream)
	}
	defer told(stream.Context(), info.FullMethod)()
	return handler(service, &testStream{ServerStream: stream})
}

// told says that a call has arrived; what it returns, how it ended. grpc-go cancels the context of
// a call that its client gave up.
func told(ctx context.Context, method string) func() {
	headers, _ := metadata.FromIncomingContext(ctx)
	names := headers.Get(callID)
	if len(names) == 0 {
		return func() {}
	}
	say(event{Event: "arrived", ID: names[0], Method: method})
	return func() {
		end := "finished"
		if ctx.Err() != nil {
			end = "cancelled"
		}
		say(event{Event: end, ID: names[0]})
	}
}

// One stream, each of whose responses is compressed or not as the request has it.
type testStream struct {
	grpc.ServerStream
	// Of the responses to come, in order.
	compressed []bool
}

func (s *testStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	if request, ok := message.(*testgrpc.StreamingOutputCallRequest); ok {
		for _, response := range request.GetResponseParameters() {
			s.compressed = append(s.compressed, response.GetCompressed().GetValue())
			if response.GetCompressed().GetValue() {
				if err := grpc.SetSendCompressor(s.Context(), gzip.Name); err != nil {
					return err
				}
			}
		}
	}
	return checkCompressed(s.Context(), message)
}

func (s *testStream) SendMsg(message any) error {
	compressed := true
	if len(s.compressed) > 0 {
		compressed, s.compressed = s.compressed[0], s.compressed[1:]
	}
	if compressed {
		return s.ServerStream.SendMsg(message)
	}
	// Prepared without the compressor that was set since: the one way past it.
	prepared := new(grpc.PreparedMsg)
	if err := prepared.Encode(s.ServerStream, message); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(prepared)
}

// checkCompressed refuses the message that came last if it is not as it says itself.
func checkCompressed(ctx context.Context, message any) error {
	expecting, ok := message.(interface{ GetExpectCompressed() *testgrpc.BoolValue })
	if !ok || expecting.GetExpectCompressed() == nil {
		return nil
	}
	last, _ := ctx.Value(lastCompressed{}).(*atomic.Bool)
	if last == nil || last.Load() != expecting.GetExpectCompressed().GetValue() {
		return status.Error(codes.InvalidArgument, "the message's compression is not as expected")
	}
	return nil
}

// lastCompressed is the context's key of whether the call's last message came compressed.
type lastCompressed struct{}

// received learns it; grpc-go tells nobody else.
type received struct{}

func (received) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, lastCompressed{}, new(atomic.Bool))
}

func (received) HandleRPC(ctx context.Context, what stats.RPCStats) {
	if payload, ok := what.(*stats.InPayload); ok {
		if last, ok := ctx.Value(lastCompressed{}).(*atomic.Bool); ok {
			last.Store(payload.CompressedLength != payload.Length)
		}
	}
}

func (received) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (received) HandleConn(context.Context, stats.ConnStats) {}
