import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.concurrent.atomic.AtomicInteger;

/** Has so many threads, each of which does something a hundred times a second, and says how many did. */
class Threads {
    public static void main(String[] args) throws Exception {
        int threads = Integer.parseInt(args[0]);
        AtomicInteger alive = new AtomicInteger();
        for (int i = 0; i < threads; i++) {
            Thread t = new Thread(() -> {
                alive.incrementAndGet();
                byte[][] garbage = new byte[16][];
                for (int n = 0; ; n++) {
                    garbage[n % garbage.length] = new byte[1000];
                    try {
                        Thread.sleep(10);
                    } catch (InterruptedException e) {
                        return;
                    }
                }
            });
            t.setDaemon(true);
            t.start();
        }
        try (ServerSocket server = new ServerSocket(Integer.parseInt(args[1]), 50, InetAddress.getLoopbackAddress())) {
            while (true) {
                try (var asking = server.accept()) {
                    asking.getOutputStream().write((alive.get() + "\n").getBytes());
                }
            }
        }
    }
}
