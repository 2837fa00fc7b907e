package helios;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local files with permissions set by Java. Hadoop would start a process (chmod) for each new file. */
public class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Raw());
  }

  public static class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getStickyBit()) { // Java cannot set the sticky bit
        super.setPermission(path, permission);
        return;
      }
      String owner = permission.getUserAction().SYMBOL;
      String text = owner + permission.getGroupAction().SYMBOL + permission.getOtherAction().SYMBOL;
      Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
    }
  }
}
