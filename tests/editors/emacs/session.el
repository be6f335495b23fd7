;;; session.el --- Emacs' own jsonrpc.el has a conversation with a daemon  -*- lexical-binding: t -*-

;; emacs -Q --batch -l session.el
;;
;; The environment says what to do, because Emacs sorts its arguments: REFOLD_TEST is a JSON object with `command' (an
;; array), `store' and `mode'.  The session is opened in the current folder.  Modes:
;;   orderly  a turn with a tool, a second turn that hangs and is interrupted, shutdown, exit
;;   abrupt   exit without shutdown
;;   orphan   a turn whose tool hangs; then it waits to be killed
;; Standard output gets one line of JSON that tells what was seen.

(require 'jsonrpc)
(require 'cl-lib)
(require 'seq)

(defvar told (json-parse-string (getenv "REFOLD_TEST") :object-type 'plist :array-type 'list))
(defvar events nil "Events, the newest first.")
(defvar stray nil "What came and was not expected.")
(defvar changed nil "Whether a change of status was told.")

(defun take (_connection method params)
  "Take a notification."
  (pcase method
    ('session/events
     (unless (equal (plist-get params :prev) (if events (plist-get (car events) :seq) -1))
       (push "a gap" stray))
     (seq-doseq (event (plist-get params :events)) (push event events)))
    ('sessions/changed (setq changed t))
    (_ (push (symbol-name method) stray))))

(defvar connection
  (make-instance 'jsonrpc-process-connection
                 :name "refold"
                 :process (lambda ()
                            (make-process :name "refold" :command (plist-get told :command) :connection-type 'pipe
                                          :coding 'utf-8-emacs-unix :noquery t
                                          :stderr (get-buffer-create "*refold stderr*")))
                 :notification-dispatcher #'take
                 :request-dispatcher (lambda (_connection method _params)
                                       (push (symbol-name method) stray)
                                       (jsonrpc-error :code -32601 :message "not here"))))

(defun ask (method params)
  "Send a request and give its result."
  (jsonrpc-request connection method params :timeout 100))

(defun event (wanted)
  "Wait for an event of which WANTED is true."
  (let (found)
    (while (not (setq found (cl-find-if wanted events)))
      (accept-process-output))
    found))

(defun of-type (type turn)
  "Give a test for events of TYPE in TURN."
  (lambda (event)
    (and (equal (plist-get event :type) type)
         (equal (plist-get (plist-get event :data) :turn) turn))))

(defun reason-of (event)
  "Give the reason of a turn's end."
  (plist-get (plist-get event :data) :reason))

(defun prompt (text)
  "Start a turn and give its number."
  (plist-get (ask :turn/start (list :session session :content (vector (list :type "text" :text text)))) :turn))

(defun exit-code ()
  "Tell the daemon to exit, and give its exit code."
  (let ((process (jsonrpc--process connection)))
    (jsonrpc-notify connection :exit nil)
    (while (process-live-p process)
      (accept-process-output process 1))
    (process-exit-status process)))

(defun tell (&rest report)
  "Write the report, with SESSION and STRAY, at once."
  (let ((report (append report (list :session session :stray (vconcat stray)))))
    (send-string-to-terminal (concat (decode-coding-string (json-serialize report :false-object :json-false :null-object nil) 'utf-8) "\n"))))

(defvar server
  (ask :initialize
       (list :processId (emacs-pid) :rootUri nil :capabilities (make-hash-table)
             :clientInfo (list :name "emacs")
             :initializationOptions (list :store (plist-get told :store) :onDisconnect "cancel"))))
(jsonrpc-notify connection :initialized (make-hash-table))

(defvar session
  (plist-get (ask :session/open (list :cwd (directory-file-name (expand-file-name default-directory)))) :session))
(ask :event/subscribe (list :session session :after -1))

(pcase (plist-get told :mode)
  ("orderly"
   (let* ((first (event (of-type "turn/end" (prompt "What is here? ü"))))
          (turn (prompt "And now hang."))
          (_ (event (of-type "assistant/chunk" turn)))
          (second (plist-get (ask :turn/interrupt (list :session session :turn turn)) :reason))
          (unknown (condition-case failure
                       (ask :no/such (make-hash-table))
                     (jsonrpc-error (alist-get 'jsonrpc-error-code (cddr failure))))))
     (event (of-type "turn/end" turn))
     (ask :shutdown nil)
     (tell :name (plist-get (plist-get server :serverInfo) :name)
           :first (reason-of first) :second second :unknown unknown :changed (if changed t :json-false)
           :types (vconcat (mapcar (lambda (event) (plist-get event :type)) (reverse events)))
           :code (exit-code))))
  ("abrupt" (tell :code (exit-code)))
  ("orphan"
   (event (of-type "tool/call" (prompt "And now hang.")))
   (tell :daemon (process-id (jsonrpc--process connection)))
   (while t (accept-process-output))))

(kill-emacs 0)
