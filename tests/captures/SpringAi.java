// Spans of Spring AI (2.0.1, Micrometer Tracing 1.6.0 with its OpenTelemetry bridge); a local server answers for the model.
//
//   mvn dependency:copy-dependencies   # spring-ai-client-chat, spring-ai-openai, micrometer-tracing-bridge-otel,
//                                      # opentelemetry-sdk, opentelemetry-exporter-logging-otlp
//   java -cp 'lib/*' SpringAi.java OUT.json [nocontent]
//
// Content stands on tool spans only with ToolCallingContentObservationFilter (spring.ai.tools.observations.include-content).
import com.sun.net.httpserver.HttpServer;
import io.micrometer.observation.ObservationRegistry;
import io.micrometer.tracing.handler.DefaultTracingObservationHandler;
import io.micrometer.tracing.otel.bridge.OtelCurrentTraceContext;
import io.micrometer.tracing.otel.bridge.OtelTracer;
import io.opentelemetry.exporter.logging.otlp.OtlpJsonLoggingSpanExporter;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.function.Function;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.client.advisor.MessageChatMemoryAdvisor;
import org.springframework.ai.chat.client.advisor.ToolCallingAdvisor;
import org.springframework.ai.chat.memory.ChatMemory;
import org.springframework.ai.chat.memory.MessageWindowChatMemory;
import org.springframework.ai.model.tool.DefaultToolCallingManager;
import org.springframework.ai.openai.OpenAiChatModel;
import org.springframework.ai.openai.OpenAiChatOptions;
import org.springframework.ai.tool.ToolCallback;
import org.springframework.ai.tool.function.FunctionToolCallback;
import org.springframework.ai.tool.observation.ToolCallingContentObservationFilter;

public class SpringAi {
    record Customer(String customer) {}
    record File(String path) {}
    record Query(String query) {}
    record Nothing() {}
    record Question(String question) {}

    static final Deque<String> script = new ArrayDeque<>();
    static final List<String> requests = new ArrayList<>();

    /** An answer of the model: text, or calls as {id, tool, arguments}. */
    static String text(String words) {
        return answer("\"content\":\"" + words + "\"", "stop");
    }

    static String calls(String[]... calls) {
        var found = Arrays.stream(calls).map(call -> "{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"%s\",\"arguments\":\"%s\"}}"
            .formatted(call[0], call[1], call[2].replace("\"", "\\\""))).toList();
        return answer("\"content\":null,\"tool_calls\":[" + String.join(",", found) + "]", "tool_calls");
    }

    static String answer(String message, String reason) {
        return ("{\"id\":\"c\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"scripted-1\",\"choices\":[{\"index\":0,\"message\":"
            + "{\"role\":\"assistant\"," + message + "},\"finish_reason\":\"" + reason + "\"}],"
            + "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15}}");
    }

    static String[] call(String id, String tool, String arguments) {
        return new String[] {id, tool, arguments};
    }

    static <I, O> ToolCallback tool(String name, Class<I> input, Function<I, O> body) {
        return FunctionToolCallback.builder(name, body).description("a tool").inputType(input).build();
    }

    public static void main(String[] arguments) throws Exception {
        boolean content = !Arrays.asList(arguments).contains("nocontent");
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", exchange -> {
            exchange.getRequestBody().readAllBytes();
            byte[] body = script.remove().getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().add("Content-Type", "application/json");
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        Logger logger = Logger.getLogger(OtlpJsonLoggingSpanExporter.class.getName());
        logger.setUseParentHandlers(false);
        logger.addHandler(new Handler() {
            @Override public void publish(LogRecord one) { requests.add(one.getMessage()); }
            @Override public void flush() {}
            @Override public void close() {}
        });
        var provider = SdkTracerProvider.builder()
            .setResource(Resource.create(Attributes.of(AttributeKey.stringKey("service.name"), "capture-app")))
            .addSpanProcessor(SimpleSpanProcessor.create(OtlpJsonLoggingSpanExporter.create())).build();
        var registry = ObservationRegistry.create();
        var tracer = new OtelTracer(provider.get("org.springframework.boot"), new OtelCurrentTraceContext(), event -> {});
        registry.observationConfig().observationHandler(new DefaultTracingObservationHandler(tracer));
        if (content) registry.observationConfig().observationFilter(new ToolCallingContentObservationFilter());

        var manager = DefaultToolCallingManager.builder().observationRegistry(registry).build();
        var options = OpenAiChatOptions.builder().baseUrl("http://127.0.0.1:" + server.getAddress().getPort() + "/v1")
            .apiKey("none").model("scripted-1").build();
        var model = OpenAiChatModel.builder().options(options).observationRegistry(registry).build();
        var memory = MessageChatMemoryAdvisor.builder(MessageWindowChatMemory.builder().build()).build();
        ChatClient bob = client(model, registry, manager).defaultTools(search()).build();
        ChatClient alice = client(model, registry, manager).defaultAdvisors(memory).defaultSystem("You help.").defaultTools(
            search(),
            tool("read_config", File.class, file -> { throw new IllegalStateException("no such file: " + file.path()); }),
            tool("list_files", File.class, file -> List.of()),
            tool("kb_search", Query.class, query -> "No results found"),
            tool("lookup_none", Query.class, query -> ""),
            tool("now", Nothing.class, nothing -> "noon"),
            tool("ask_bob", Question.class, question -> bob.prompt(question.question()).call().content())).build();

        String zoe = "{\"customer\":\"Zoe\"}";
        script.add(calls(call("call_1", "search_orders", zoe)));
        script.add(calls(call("call_2", "search_orders", zoe)));
        script.add(calls(call("call_3", "read_config", "{\"path\":\"/etc/app.yaml\"}")));
        script.add(calls(call("call_4", "list_files", "{\"path\":\"/tmp\"}"), call("call_5", "kb_search", "{\"query\":\"refund\"}"),
            call("call_6", "lookup_none", "{\"query\":\"x\"}")));
        script.add(calls(call("call_7", "now", "{}")));
        script.add(calls(call("call_8", "ask_bob", "{\"question\":\"orders of Bob?\"}")));
        script.add(calls(call("call_9", "search_orders", "{\"customer\":\"Bob\"}")));
        script.add(text("bob found A-1"));
        script.add(text("first answer"));
        script.add(calls(call("call_10", "search_orders", zoe)));
        script.add(text("second answer"));
        for (String words : List.of("find the orders", "search again")) {
            alice.prompt(words).advisors(one -> one.param(ChatMemory.CONVERSATION_ID, "chat-7")).call().content();
        }
        provider.shutdown();
        server.stop(0);
        Files.writeString(Path.of(arguments[0]), "{\"resourceSpans\":[" + String.join(",", requests) + "]}\n");
        System.exit(0);
    }

    static ToolCallback search() {
        return tool("search_orders", Customer.class, customer -> java.util.Map.of("orders", List.of("A-1 for " + customer.customer())));
    }

    static ChatClient.Builder client(OpenAiChatModel model, ObservationRegistry registry, DefaultToolCallingManager manager) {
        return ChatClient.builder(model, registry, null, null, ToolCallingAdvisor.builder().toolCallingManager(manager));
    }
}
