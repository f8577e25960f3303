import com.google.gson.Gson;
import io.grpc.NameResolver.ConfigOrError;
import io.grpc.internal.AutoConfiguredLoadBalancerFactory;
import io.grpc.internal.JsonParser;
import io.grpc.internal.ScParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Whether grpc-java takes a service config, as a channel of its would that got it from a resolver.
 *
 * <p>Each line of the input is a JSON string, the config's text; each line of the output is {@code
 * accepted}, or {@code refused} and why.
 */
final class Verdicts {
    /** The limits of attempts that a channel has without further settings. */
    private static final int MOST_ATTEMPTS = 5;

    private Verdicts() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Gson gson = new Gson();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(verdict(gson.fromJson(line, String.class)));
        }
    }

    private static String verdict(String text) {
        Object read;
        try {
            read = JsonParser.parse(text);
        } catch (Exception | StackOverflowError error) {
            return refused(error);
        }
        if (!(read instanceof Map)) {
            return "refused: no object";
        }
        @SuppressWarnings("unchecked") // A JSON object's keys are strings.
        Map<String, ?> config = (Map<String, ?>) read;
        ScParser parser = new ScParser(
                true, MOST_ATTEMPTS, MOST_ATTEMPTS, new AutoConfiguredLoadBalancerFactory("pick_first"));
        ConfigOrError parsed = parser.parseServiceConfig(config);
        if (parsed.getError() == null) {
            return "accepted";
        }
        Throwable cause = parsed.getError().getCause();
        return cause == null ? "refused: " + parsed.getError().getDescription() : refused(cause);
    }

    /** In one line. */
    private static String refused(Throwable error) {
        return ("refused: " + error).replace('\n', ' ');
    }
}
