//! Servers without TLS, or with a self-signed certificate.

use super::*;

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

#[test]
fn a_self_signed_certificate_is_a_tls_failure() {
    use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
    let url = raw_server(|mut stream| {
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
    });
    let cache = tempfile::tempdir().unwrap();
    let (code, error) = failure(fetch_url(cache.path(), &url, &limits()));
    assert!(code == "tls" && error.to_string().contains("UnknownIssuer"), "{error}");
}
