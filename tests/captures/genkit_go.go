// Spans of Genkit for Go (github.com/firebase/genkit/go v1.4.0), with a scripted model.
//
//	go get github.com/firebase/genkit/go@v1.4.0 go.opentelemetry.io/otel/sdk
//	go run genkit_go.go OUT.json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

type M = map[string]any

func call(id, name string, input M) *ai.Part {
	return ai.NewToolRequestPart(&ai.ToolRequest{Ref: id, Name: name, Input: input})
}

var zoe = M{"customer": "Zoë"}
var answers = [][]*ai.Part{
	{call("call_1", "search_orders", zoe)},
	{call("call_2", "search_orders", zoe)},
	{call("call_3", "search_orders", zoe)},
	{call("call_5", "list_files", M{"path": "/tmp"}), call("call_6", "kb_search", M{"query": "refund"})},
	{call("call_7", "now", M{})},
	{call("call_8", "ask_bob", M{"question": "orders of Bob?"})},
	{call("call_9", "search_orders", M{"customer": "Bob"})},
	{ai.NewTextPart("bob found A-1")},
	{ai.NewTextPart("first answer")},
	{call("call_10", "search_orders", zoe)},
	{call("call_4", "read_config", M{"path": "/etc/app.yaml"})},
}

type Customer struct {
	Customer string `json:"customer"`
}
type Path struct {
	Path string `json:"path"`
}
type Query struct {
	Query string `json:"query"`
}
type Question struct {
	Question string `json:"question"`
}

func main() {
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter()
	named := resource.NewSchemaless(attribute.String("service.name", "capture-app"))
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(exporter), sdk.WithResource(named)))
	g := genkit.Init(ctx)
	model := genkit.DefineModel(g, "scripted/one", &ai.ModelOptions{Supports: &ai.ModelSupports{Tools: true, Multiturn: true}},
		func(ctx context.Context, request *ai.ModelRequest, _ ai.ModelStreamCallback) (*ai.ModelResponse, error) {
			parts := answers[0]
			answers = answers[1:]
			usage := &ai.GenerationUsage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15}
			return &ai.ModelResponse{Message: ai.NewModelMessage(parts...), FinishReason: "stop", Usage: usage, Request: request}, nil
		})
	search := genkit.DefineTool(g, "search_orders", "a tool", func(_ *ai.ToolContext, in Customer) (M, error) {
		return M{"orders": []string{"A-1 for " + in.Customer}}, nil
	})
	tools := []ai.ToolRef{
		search,
		genkit.DefineTool(g, "read_config", "a tool", func(_ *ai.ToolContext, in Path) (string, error) {
			return "", errors.New("no such file: " + in.Path)
		}),
		genkit.DefineTool(g, "list_files", "a tool", func(_ *ai.ToolContext, in Path) ([]string, error) { return []string{}, nil }),
		genkit.DefineTool(g, "kb_search", "a tool", func(_ *ai.ToolContext, in Query) (string, error) { return "No results found", nil }),
		genkit.DefineTool(g, "now", "a tool", func(_ *ai.ToolContext, in struct{}) (string, error) { return "noon", nil }),
		genkit.DefineTool(g, "ask_bob", "a tool", func(ctx *ai.ToolContext, in Question) (string, error) {
			answer, err := genkit.Generate(ctx, g, ai.WithModel(model), ai.WithPrompt(in.Question), ai.WithTools(search))
			if err != nil {
				return "", err
			}
			return answer.Text(), nil
		}),
	}
	for _, words := range []string{"find the orders", "read the configuration"} {
		answer, err := genkit.Generate(ctx, g, ai.WithModel(model), ai.WithPrompt(words), ai.WithTools(tools...), ai.WithMaxTurns(20))
		if err != nil {
			fmt.Println("failed:", err)
		} else {
			fmt.Println(answer.Text())
		}
	}
	write(exporter.GetSpans(), os.Args[1])
}

// write writes spans as an OTLP/JSON request.
func write(spans tracetest.SpanStubs, file string) {
	var written []any
	for _, span := range spans {
		one := M{
			"traceId": span.SpanContext.TraceID().String(), "spanId": span.SpanContext.SpanID().String(), "name": span.Name,
			"startTimeUnixNano": fmt.Sprint(span.StartTime.UnixNano()), "endTimeUnixNano": fmt.Sprint(span.EndTime.UnixNano()),
			"attributes": attributes(span.Attributes), "status": M{"code": map[string]int{"Unset": 0, "Ok": 1, "Error": 2}[span.Status.Code.String()], "message": span.Status.Description},
		}
		if span.Parent.IsValid() {
			one["parentSpanId"] = span.Parent.SpanID().String()
		}
		var events []any
		for _, event := range span.Events {
			events = append(events, M{"name": event.Name, "timeUnixNano": fmt.Sprint(event.Time.UnixNano()), "attributes": attributes(event.Attributes)})
		}
		if events != nil {
			one["events"] = events
		}
		written = append(written, M{"scope": M{"name": span.InstrumentationScope.Name, "version": span.InstrumentationScope.Version}, "spans": []any{one}})
	}
	request := M{"resourceSpans": []any{M{"resource": M{"attributes": attributes(spans[0].Resource.Attributes())}, "scopeSpans": written}}}
	text, _ := json.MarshalIndent(request, "", " ")
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		panic(err)
	}
}

func attributes(found []attribute.KeyValue) []any {
	written := []any{}
	for _, one := range found {
		value := M{"stringValue": one.Value.Emit()}
		switch one.Value.Type() {
		case attribute.BOOL:
			value = M{"boolValue": one.Value.AsBool()}
		case attribute.INT64:
			value = M{"intValue": one.Value.Emit()}
		}
		written = append(written, M{"key": string(one.Key), "value": value})
	}
	return written
}
