//! Servers without TLS, or with a self-signed certificate.

use super::*;
use crate::program::process::{run, text};

/// Runs `answer` on one connection, without reading any HTTP first.
fn raw_server(answer: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || answer(listener.accept().unwrap().0));
    format!("https://{address}/fw.zip")
}

#[test]
fn a_server_that_does_not_speak_tls_is_a_tls_failure() {
    let plain = raw_server(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        send(&mut stream, "400 Bad Request", b"speak HTTP");
    });
    let hangs_up = raw_server(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
    });
    for url in [plain, hangs_up] {
        let cache = tempfile::tempdir().unwrap();
        let (code, error) = failure(fetch_url(cache.path(), &url, &limits()));
        assert_eq!(code, "tls", "{error}");
    }
}

/// A server whose certificate nobody has signed, as behind a company's proxy whose issuer is unknown here.
fn self_signed_server() -> String {
    use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
    raw_server(|mut stream| {
        let certificate = CertificateDer::from(&include_bytes!("self_signed.der")[..]);
        let key = PrivatePkcs8KeyDer::from(&include_bytes!("self_signed.key.der")[..]);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())
            .unwrap();
        let mut connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let _ = connection.complete_io(&mut stream);
    })
}

#[test]
fn a_self_signed_certificate_is_a_tls_failure() {
    let url = self_signed_server();
    let cache = tempfile::tempdir().unwrap();
    let (code, error) = failure(fetch_url(cache.path(), &url, &limits()));
    assert!(code == "tls" && error.to_string().contains("UnknownIssuer"), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn an_unknown_issuer_leads_to_the_variable_that_names_its_certificate() {
    let (url, folder) = (self_signed_server(), tempfile::tempdir().unwrap());
    let output = run(folder.path(), &["download", "240417", "--from", &url]);
    let words = text(&output);
    assert_eq!(output.status.code(), Some(6), "{words}");
    assert!(words.contains("asmpatch::http::tls") && words.contains("SSL_CERT_FILE"), "{words}");
}
