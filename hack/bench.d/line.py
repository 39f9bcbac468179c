"""A proxy between a client and a server of 127.0.0.1: it counts bytes and requests, and can be as slow as a line far away."""

import queue
import socket
import threading
import time


class Line:
    """Hands on to this port. `bits` a second come down at most, and each way takes `delay` seconds."""

    def __init__(self, to, bits=None, delay=0.0):
        self.to, self.bits, self.delay = to, bits, delay
        self.down = self.up = self.requests = 0
        # When the line is free for the next bytes that come down.
        self.free, self.lock = 0.0, threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.listener.accept()
            # TCP asks and answers before the first byte.
            time.sleep(2 * self.delay)
            server = socket.create_connection(("127.0.0.1", self.to))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.hand_on, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.hand_on, args=(server, client, False), daemon=True).start()

    def arrives(self, count, is_up):
        """When bytes that are sent now are there."""
        now = time.monotonic()
        if is_up or not self.bits:
            return now + self.delay
        with self.lock:
            self.free = max(self.free, now) + count * 8 / self.bits
            return self.free + self.delay

    def hand_on(self, source, to, is_up):
        # Four megabytes are on their way at most.
        under_way = queue.Queue(64)
        threading.Thread(target=self.deliver, args=(under_way, to), daemon=True).start()
        try:
            while data := source.recv(64 << 10):
                if is_up:
                    self.up += len(data)
                    self.requests += data.count(b" HTTP/1.1\r\n")
                else:
                    self.down += len(data)
                under_way.put((self.arrives(len(data), is_up), data))
        except OSError:
            pass
        under_way.put((0, None))

    def deliver(self, under_way, to):
        while True:
            at, data = under_way.get()
            if data is None:
                break
            if self.delay or self.bits:
                time.sleep(max(0.0, at - time.monotonic()))
            try:
                to.sendall(data)
            except OSError:
                break
        try:
            to.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def take(self):
        """Bytes both ways and requests since the last call."""
        counted = (self.down + self.up, self.requests)
        self.down = self.up = self.requests = 0
        return counted
