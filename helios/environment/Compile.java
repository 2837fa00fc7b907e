package helios;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Map;
import org.codehaus.janino.SimpleCompiler;

/** Compiles a source file into class files with Spark's own compiler, so that no JDK is needed. */
public class Compile {
  public static void main(String[] arguments) throws Exception {
    SimpleCompiler compiler = new SimpleCompiler();
    compiler.cookFile(new File(arguments[0]));
    for (Object entry : compiler.getBytecodes().entrySet()) {
      Map.Entry compiled = (Map.Entry) entry;
      Path path = Paths.get(arguments[1], ((String) compiled.getKey()).replace('.', '/') + ".class");
      Files.createDirectories(path.getParent());
      Files.write(path, (byte[]) compiled.getValue());
    }
  }
}
