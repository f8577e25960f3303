// A scripted probe server on grpc-go: does what each request says and prints what it sees.
//
// Usage: server REPLICA [PORT]. A line `drain` on its standard input stops it gracefully; it ends
// when its standard input does. Messages are dynamic, by the descriptor set that
// $INTEROP_DESCRIPTORS names: no code is generated for it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const service = "hedge.testing.v1.Probe"

type event struct {
	Event            string `json:"event"`
	ID               string `json:"id,omitempty"`
	Method           string `json:"method,omitempty"`
	Port             int    `json:"port,omitempty"`
	PreviousAttempts *int   `json:"previous_attempts,omitempty"`
	TimeoutMs        *int64 `json:"timeout_ms,omitempty"`
}

var output sync.Mutex

func say(what event) {
	output.Lock()
	defer output.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		log.Fatal(err)
	}
}

type probe struct {
	replica        string
	request, reply protoreflect.MessageDescriptor
}

func main() {
	set, err := os.ReadFile(os.Getenv("INTEROP_DESCRIPTORS"))
	if err != nil {
		log.Fatal(err)
	}
	var files descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(set, &files); err != nil {
		log.Fatal(err)
	}
	known, err := protodesc.NewFiles(&files)
	if err != nil {
		log.Fatal(err)
	}
	found, err := known.FindDescriptorByName(service)
	if err != nil {
		log.Fatal(err)
	}
	get := found.(protoreflect.ServiceDescriptor).Methods().ByName("Get")
	p := &probe{os.Args[1], get.Input(), get.Output()}

	server := grpc.NewServer(append(testServiceOptions(), transport()...)...)
	registerTestService(server)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{p.unary("Get"), p.unary("Put")},
		Streams:     []grpc.StreamDesc{p.streaming("Watch")},
	}, p)

	port := "0"
	if len(os.Args) > 2 {
		port = os.Args[2]
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := server.Serve(listener); err != nil {
			log.Fatal(err)
		}
	}()
	say(event{Event: "ready", Port: listener.Addr().(*net.TCPAddr).Port})
	// Until the driver is gone, however it went.
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "drain" {
			go func() {
				server.GracefulStop()
				say(event{Event: "drained"})
			}()
		}
	}
}

// transport is TLS where the environment names a certificate; with an authority for clients, each
// has to have a certificate, too.
func transport() []grpc.ServerOption {
	file := os.Getenv("INTEROP_TLS_CERTIFICATE")
	if file == "" {
		return nil
	}
	certificate, err := tls.LoadX509KeyPair(file, os.Getenv("INTEROP_TLS_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	if file := os.Getenv("INTEROP_TLS_CLIENTS"); file != "" {
		authority, err := os.ReadFile(file)
		if err != nil {
			log.Fatal(err)
		}
		config.ClientCAs = x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(authority)
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(config))}
}

func (p *probe) unary(name string) grpc.MethodDesc {
	handler := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := dynamicpb.NewMessage(p.request)
		if err := decode(request); err != nil {
			return nil, err
		}
		setTrailer := func(trailer metadata.MD) { _ = grpc.SetTrailer(ctx, trailer) }
		reply, err := p.react(ctx, name, request, setTrailer)
		if err != nil {
			return nil, err
		}
		return reply, nil
	}
	return grpc.MethodDesc{MethodName: name, Handler: handler}
}

func (p *probe) streaming(name string) grpc.StreamDesc {
	handler := func(_ any, stream grpc.ServerStream) error {
		request := dynamicpb.NewMessage(p.request)
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		reply, err := p.react(stream.Context(), name, request, stream.SetTrailer)
		if err != nil {
			return err
		}
		for range get(request, "messages").Uint() {
			if err := stream.SendMsg(reply); err != nil {
				return err
			}
		}
		return nil
	}
	return grpc.StreamDesc{StreamName: name, Handler: handler, ServerStreams: true}
}

func (p *probe) react(ctx context.Context, method string, request *dynamicpb.Message, setTrailer func(metadata.MD)) (*dynamicpb.Message, error) {
	id := get(request, "id").String()
	arrived := event{Event: "arrived", ID: id, Method: method}
	headers, _ := metadata.FromIncomingContext(ctx)
	if values := headers.Get("grpc-previous-rpc-attempts"); len(values) > 0 {
		previous, err := strconv.Atoi(values[0])
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		arrived.PreviousAttempts = &previous
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline).Milliseconds()
		arrived.TimeoutMs = &left
	}
	say(arrived)

	only := get(request, "only_replica").String()
	scripted := only == "" || only == p.replica
	held := time.Duration(0)
	if scripted {
		held += time.Duration(get(request, "delay_ms").Uint()) * time.Millisecond
	}
	if get(request, "slow_replica").String() == p.replica {
		held += time.Duration(get(request, "slow_ms").Uint()) * time.Millisecond
	}
	if held > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(held):
		}
	}
	if ctx.Err() != nil {
		say(event{Event: "cancelled", ID: id})
		return nil, status.FromContextError(ctx.Err()).Err()
	}

	say(event{Event: "finished", ID: id})
	if code := get(request, "status").Uint(); scripted && code != 0 {
		trailer := metadata.MD{}
		if pushback := p.request.Fields().ByName("pushback_ms"); request.Has(pushback) {
			trailer.Set("grpc-retry-pushback-ms", fmt.Sprint(request.Get(pushback).Int()))
		}
		if pushback := p.request.Fields().ByName("pushback_text"); request.Has(pushback) {
			trailer.Set("grpc-retry-pushback-ms", request.Get(pushback).String())
		}
		if details := get(request, "payload").Bytes(); len(details) > 0 {
			trailer.Set("grpc-status-details-bin", string(details))
		}
		setTrailer(trailer)
		return nil, status.Error(codes.Code(code), "scripted "+id)
	}

	reply := dynamicpb.NewMessage(p.reply)
	set := func(name protoreflect.Name, value any) {
		reply.Set(p.reply.Fields().ByName(name), protoreflect.ValueOf(value))
	}
	set("replica", p.replica)
	set("id", id)
	set("payload", bytes.Repeat([]byte{7}, int(get(request, "response_bytes").Uint())))
	if arrived.PreviousAttempts != nil {
		set("previous_attempts", uint32(*arrived.PreviousAttempts))
	}
	return reply, nil
}

func get(message *dynamicpb.Message, name protoreflect.Name) protoreflect.Value {
	return message.Get(message.Descriptor().Fields().ByName(name))
}
