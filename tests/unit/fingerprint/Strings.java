import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** Reads UTF-8 texts, a line of hex digits each; prints their hash and those of their pieces. */
public class Strings {
    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        var output = new StringBuilder();
        for (String line; (line = input.readLine()) != null; output.append('\n')) {
            var text = new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_8);
            output.append(text.hashCode());
            for (String piece : text.split(" ")) {
                output.append(' ').append(Integer.toBinaryString(piece.hashCode()));
            }
        }
        System.out.print(output);
    }
}
