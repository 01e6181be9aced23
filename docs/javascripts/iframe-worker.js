// Search without a server. The theme searches in a worker, and a browser starts
// none for a page that was opened from a disk. There, a worker's script runs in
// a hidden frame instead, which inherits the page's origin.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      // As a worker answers. A window would send the message to itself.
      inside.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      // What is sent before the script can listen waits for it.
      this.ready = new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${address}`));
        script.src = new URL(address, location.href).href;
        inside.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(
          new MessageEvent("message", { data }),
        ),
      );
    }

    terminate() {
      this.frame.remove();
    }
  };
}
